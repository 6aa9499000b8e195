"""From a network's outputs to names, boxes and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from maqee.boxes import split_output, to_corners
from maqee.runtime.predictions import Area, FoundBox, Label
from maqee.runtime.view import View
from maqee.tasks import Task
from maqee.tasks.detection import SURE
from maqee.tasks.pixels import IGNORE


def translate(output: Tensor, view: View, task: Task, classes: Sequence[str], top: int) -> dict[str, Any]:
    """What `Prediction` tells of the output for one picture: fields by name."""
    if task.targets == "boxes":
        return {"kind": "boxes", "boxes": read_boxes(output, view, classes)}
    if task.targets == "masks":
        mask = view.to_mask(output)
        return {"kind": "areas", "areas": read_areas(mask, classes), "mask": mask}
    return {"kind": "labels", "labels": read_labels(output, classes, top)}


def class_name(classes: Sequence[str], number: int) -> str:
    """The name of a class; its number as text where nobody knows it."""
    return classes[number] if number < len(classes) else str(number)


def read_labels(logits: Tensor, classes: Sequence[str], top: int) -> tuple[Label, ...]:
    """The most probable classes, from logits (classes,)."""
    probability, number = logits.float().softmax(dim=-1).topk(min(top, logits.shape[-1]))
    pairs = zip(number.tolist(), probability.tolist(), strict=True)
    return tuple(Label(class_name(classes, place), place, share) for place, share in pairs)


def read_boxes(output: Tensor, view: View, classes: Sequence[str]) -> tuple[FoundBox, ...]:
    """Objects of more than half probability, from a detector's output (queries, classes + 1 + 4)."""
    logits, boxes = split_output(output)
    probability, number = logits.softmax(dim=-1)[:, :-1].max(dim=-1)  # (queries,) each, "no object" left out
    sides = view.to_pixels(to_corners(boxes))  # (queries, 4): left, top, right, bottom
    seen = (sides[:, 2:] > sides[:, :2]).all(dim=-1)  # of a box beside the picture nothing is left
    order = probability.argsort(descending=True, stable=True)
    kept = order[((probability > SURE) & seen)[order]]
    rows = zip(number[kept].tolist(), probability[kept].tolist(), sides[kept].tolist(), strict=True)
    return tuple(FoundBox(class_name(classes, place), place, share, *box) for place, share, box in rows)


def read_areas(mask: NDArray[np.uint8], classes: Sequence[str]) -> tuple[Area, ...]:
    """The classes of a mask with their share of the pixels that have a class."""
    counts = np.bincount(mask.ravel(), minlength=IGNORE + 1)[:IGNORE]
    total = max(1, int(counts.sum()))
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    return tuple(Area(class_name(classes, int(place)), int(place), int(counts[place]) / total) for place in order)
