"""Which query answers for which object: the assignment of least cost (Hungarian matching, as in DETR and YOLOS)."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from maqee.boxes import overlap, split_output, split_target

CLASS_COST, L1_COST, GIOU_COST = 1.0, 5.0, 2.0
UNMATCHED = -1


@torch.no_grad()
def match(output: Tensor, target: Tensor) -> Tensor:
    """The query of each target box: (batch, most) indices, -1 for padding.

    Costs of the whole batch are computed where the output lies and brought to the host in one piece; the assignment
    itself is solved there, image by image. With more boxes than queries, the boxes that cost most go without.
    """
    real = split_target(target)[2]
    costs = matching_costs(output, target).masked_fill(~real[:, None], math.inf).cpu().numpy()  # (batch, queries, most)
    found = np.full(real.shape, UNMATCHED, dtype=np.int64)
    for image, cost in enumerate(costs):
        boxes = np.flatnonzero(np.isfinite(cost[0]))
        queries, columns = linear_sum_assignment(cost[:, boxes])
        found[image, boxes[columns]] = queries
    return torch.from_numpy(found).to(output.device, non_blocking=True)


def matching_costs(output: Tensor, target: Tensor) -> Tensor:
    """(batch, queries, most): -1 x probability of the class + 5 x L1 distance - 2 x generalised IoU."""
    logits, boxes = split_output(output)
    classes, wanted, _ = split_target(target)
    queries = logits.shape[1]
    probability = logits.softmax(dim=-1).gather(2, classes[:, None].expand(-1, queries, -1))
    distance = torch.cdist(boxes, wanted, p=1)
    _, giou = overlap(boxes[:, :, None], wanted[:, None])
    cost = L1_COST * distance - CLASS_COST * probability - GIOU_COST * giou
    return torch.nan_to_num(cost, nan=1e6, posinf=1e6, neginf=-1e6)  # the loop, not the matching, reports divergence
