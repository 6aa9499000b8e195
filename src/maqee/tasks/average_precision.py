"""COCO's average precision, computed by faster-coco-eval."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maqee.boxes import split_output, split_target, to_corners
from maqee.errors import MaqeeError


class AveragePrecision:
    """Collects detections and reports mAP at IoU 0.5, and averaged over IoU 0.5, 0.55, ... 0.95.

    Every query is one detection of its most probable class, with that probability as its score; nothing is suppressed
    and no threshold is applied, as in YOLOS. COCO's rules: the 100 surest detections of an image count, precision is
    read at 101 recalls, classes without a box in the data are left out. IoU does not change when an image is
    stretched, so boxes stay in shares of the image.
    """

    def __init__(self) -> None:
        _library()  # complain now, not when everything has been collected
        self.detections: list[Tensor] = []  # (queries, 6) an image: class, score, left, top, width, height
        self.boxes: list[Tensor] = []  # (n, 5) an image: class, left, top, width, height
        self._figures: tuple[float, float] | None = None

    def update(self, output: Tensor, target: Tensor) -> None:
        """Output (batch, queries, classes + 1 + 4) and padded boxes (batch, most, 5)."""
        logits, boxes = split_output(output)
        score, answer = logits.softmax(dim=-1)[..., :-1].max(dim=-1)
        found = torch.cat([answer[..., None], score[..., None], _corner_and_size(boxes)], dim=-1)
        classes, wanted, real = split_target(target)
        listed = torch.cat([classes[..., None], _corner_and_size(wanted)], dim=-1).cpu()
        self.detections += list(found.cpu())
        self.boxes += [rows[keep] for rows, keep in zip(listed, real.cpu(), strict=True)]
        self._figures = None

    def compute(self) -> float:
        """mAP@0.5, from 0 to 1; 0 where there are no boxes at all."""
        return self._evaluate()[0]

    def details(self) -> dict[str, float]:
        """The stricter mean over ten IoUs."""
        return {"mAP@[.5:.95]": self._evaluate()[1]}

    def _evaluate(self) -> tuple[float, float]:
        if self._figures is None:
            self._figures = evaluate(_library(), *self.as_coco())
        return self._figures

    def as_coco(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What was collected, as a COCO data set and as COCO results."""
        images: list[dict[str, Any]] = []
        truth: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for image, (boxes, detections) in enumerate(zip(self.boxes, self.detections, strict=True), start=1):
            images.append({"id": image, "width": 1, "height": 1})
            for label, *box in boxes.double().tolist():
                area = box[2] * box[3]
                truth.append({"id": len(truth) + 1, "image_id": image, "category_id": int(label) + 1, "bbox": box,
                              "area": area, "iscrowd": 0})  # fmt: skip
            for label, score, *box in detections.double().tolist():
                results.append({"image_id": image, "category_id": int(label) + 1, "bbox": box, "score": score})
        labels = sorted({row["category_id"] for row in truth})
        categories = [{"id": label, "name": str(label)} for label in labels]
        wanted = [row for row in results if row["category_id"] in set(labels)]
        return {"info": {}, "images": images, "annotations": truth, "categories": categories}, wanted


def evaluate(library: Any, truth: dict[str, Any], results: list[dict[str, Any]]) -> tuple[float, float]:
    """(mAP@0.5, mAP@[.5:.95]) of COCO results, by a library with COCO's classes `COCO` and `COCOeval_faster`."""
    if not truth["annotations"] or not results:
        return 0.0, 0.0
    dataset = library.COCO(truth)
    run = library.COCOeval_faster(dataset, dataset.loadRes(results), "bbox")
    run.evaluate()
    run.accumulate()
    run.summarize()
    return max(0.0, float(run.stats[1])), max(0.0, float(run.stats[0]))


def _corner_and_size(boxes: Tensor) -> Tensor:
    """Centre x, centre y, width, height to left, top, width, height."""
    return torch.cat([to_corners(boxes)[..., :2], boxes[..., 2:]], dim=-1)


def _library() -> Any:
    try:
        import faster_coco_eval
    except ImportError as error:
        raise MaqeeError("mAP needs the package faster-coco-eval: pip install 'maqee[det]'.") from error
    return faster_coco_eval
