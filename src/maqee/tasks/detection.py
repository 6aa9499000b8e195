"""Object detection as YOLOS does it: every query answers for at most one object, so nothing has to be suppressed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from maqee.boxes import overlap, split_output, split_target
from maqee.errors import MaqeeError
from maqee.tasks.average_precision import AveragePrecision
from maqee.tasks.base import tasks
from maqee.tasks.matching import match

L1_WEIGHT, GIOU_WEIGHT, NO_OBJECT_WEIGHT = 5.0, 2.0, 0.1
SURE, MEETS = 0.5, 0.5  # `score`: a detection counts from this probability on, and hits from this IoU on


class Detection:
    """The task of finding objects. `maqee.boxes` describes outputs and targets."""

    name = "detection"
    metric_name = "mAP@0.5"
    score_name = "image F1"
    targets = "boxes"
    on_device = False  # the host matches queries and objects

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy + 5 x L1 + 2 x (1 - generalised IoU) of matched queries, for each image.

        "No object" weighs a tenth in the cross-entropy, which is a weighted mean over queries. Box terms are summed
        over an image's boxes and divided by their number, at least 1. YOLOS divides both by the batch's totals, so
        that an image with many objects weighs more there; here all images weigh the same, because searches over exits
        need the loss of a single image.
        """
        logits, boxes = split_output(output)
        classes, wanted, real = split_target(target)
        query = match(output, target)  # (batch, most)
        matched = query >= 0
        none = logits.shape[-1] - 1
        labels = torch.full(logits.shape[:2], none, device=logits.device)
        # A last column takes what padding writes; it is cut off again.
        labels = F.pad(labels, (0, 1)).scatter(1, query.where(matched, labels.shape[1]), classes)[:, :-1]
        weights = torch.where(labels == none, NO_OBJECT_WEIGHT, 1.0)  # (batch, queries)
        entropy = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        found = boxes.gather(1, query.clamp(min=0)[..., None].expand(-1, -1, 4))  # (batch, most, 4)
        distance = (found - wanted).abs().sum(dim=-1)
        _, giou = overlap(found, wanted)
        per_box = (L1_WEIGHT * distance + GIOU_WEIGHT * (1 - giou)) * matched
        count = real.sum(dim=1).clamp(min=1)
        return (weights * entropy).sum(dim=1) / weights.sum(dim=1) + per_box.sum(dim=1) / count

    def confidence(self, output: Tensor) -> Tensor:
        """Mean probability of the objects found; if there are none, mean probability that there is nothing.

        The paper is silent here. A query finds an object where "no object" is not its most probable answer.
        """
        probability = split_output(output)[0].softmax(dim=-1)  # (batch, queries, classes + 1)
        best, answer = probability.max(dim=-1)
        finds = answer != probability.shape[-1] - 1
        objects = (best * finds).sum(dim=1) / finds.sum(dim=1).clamp(min=1)
        return torch.where(finds.any(dim=1), objects, probability[..., -1].mean(dim=1))

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """F1 of the detections of more than half probability at IoU 0.5; an empty image rightly left empty has 1.

        Greedy, as average precision pairs them: the surest detection takes the free box of its class that it
        overlaps most. All images of the batch go through their n-th detection together.
        """
        logits, boxes = split_output(output)
        classes, wanted, real = split_target(target)
        best, answer = logits.softmax(dim=-1)[..., :-1].max(dim=-1)  # (batch, queries)
        order = best.argsort(dim=1, descending=True, stable=True)
        iou, _ = overlap(boxes[:, :, None], wanted[:, None])  # (batch, queries, most)
        fits = (answer[:, :, None] == classes[:, None]) & real[:, None] & (iou >= MEETS)
        sure = best > SURE
        value = (iou * (fits & sure[..., None])).gather(1, order[..., None].expand_as(iou))
        free = real.clone()
        if wanted.shape[1]:
            for rank in range(value.shape[1]):
                most, box = (value[:, rank] * free).max(dim=1)
                free.scatter_(1, box[:, None], free.gather(1, box[:, None]) & (most == 0)[:, None])
        hits = (real & ~free).sum(dim=1)
        total = real.sum(dim=1) + sure.sum(dim=1)
        return torch.where(total > 0, 2 * hits / total.clamp(min=1), 1.0)

    def distillation(self, output: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """T^2 KL over classes + 5 x L1 of boxes, query by query, means weighted by what the teacher sees there.

        Queries need no matching: a token keeps its identity through the blocks. Where the teacher sees nothing, the
        classes count a tenth, as in the loss, and the box not at all.
        """
        (logits, boxes), (wanted, wanted_boxes) = split_output(output), split_output(teacher)
        student = F.log_softmax(logits / temperature, dim=-1)
        target = F.log_softmax(wanted / temperature, dim=-1)
        divergence = F.kl_div(student, target, reduction="none", log_target=True).sum(dim=-1) * temperature**2
        seen = 1 - wanted.softmax(dim=-1)[..., -1]  # (batch, queries)
        weights = NO_OBJECT_WEIGHT + (1 - NO_OBJECT_WEIGHT) * seen
        distance = (boxes - wanted_boxes).abs().sum(dim=-1)
        imitation = (weights * divergence).sum(dim=1) / weights.sum(dim=1)
        return imitation + L1_WEIGHT * (seen * distance).sum(dim=1) / seen.sum(dim=1).clamp(min=1)

    def metric(self) -> AveragePrecision:
        """mAP@0.5, and mAP@[.5:.95] among the details."""
        return AveragePrecision()

    def smoothed(self, amount: float) -> Detection:
        """Not for boxes."""
        raise MaqeeError(f"label_smoothing {amount} is for classification: remove it from the detection recipe.")


tasks.register("detection")(Detection())
