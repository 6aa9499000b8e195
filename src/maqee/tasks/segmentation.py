"""Semantic segmentation: a class for every pixel.

Outputs are pictures of logits at the token grid (batch, classes, rows, columns), targets are masks of class numbers
(batch, height, width) in which `IGNORE` marks pixels that do not count. For the loss, the score and the metric the
logits are stretched to the size of the mask, bilinearly.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.tasks import pixels
from maqee.tasks.base import tasks
from maqee.tasks.pixels import IGNORE

# The task, and so the confidence, of new work that names none; what is stored keeps its name.
DEFAULT = "segmentation-iou"
# Logits stretched at a time: a large batch of many classes fits into memory, and on a processor into its caches.
_AT_ONCE, _AT_ONCE_ON_CPU = 1 << 27, 1 << 20


def stretch(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Logits (batch, classes, rows, columns) to (batch, classes, height, width), bilinearly in single precision.

    Rows and columns are stretched one after the other, by products with short matrices: a third of the time that
    F.interpolate takes on a processor, there and back, and on a GPU gradients that are the same every time.
    """
    with torch.autocast(logits.device.type, enabled=False):
        columns = _stretching(logits.shape[3], size[1], logits.device)
        rows = _stretching(logits.shape[2], size[0], logits.device)
        return rows @ (logits.float().contiguous() @ columns.T)


def _stretching(cells: int, pixels: int, device: torch.device) -> Tensor:
    """(pixels, cells): what each cell gives to each pixel, which is how F.interpolate stretches its unit vectors."""
    units = torch.eye(cells, device=device)[None]  # (1, cells, cells): each row a vector to be stretched
    return F.interpolate(units, size=pixels, mode="linear", align_corners=False)[0].T


class MeanIou:
    """Mean over classes of intersection over union, from the counts over all images together.

    A class that neither the masks nor the predictions have does not take part.
    """

    def __init__(self) -> None:
        self.counts: Tensor | int = 0  # (classes, classes): rows are truth, columns prediction

    def update(self, output: Tensor, target: Tensor) -> None:
        """Logits and masks of a batch; the counts stay on the device until asked."""
        self.counts = self.counts + confusion(output, target).sum(dim=0)

    def compute(self) -> float:
        """Mean IoU from 0 to 1."""
        if isinstance(self.counts, int):
            return 0.0
        together, truth, predicted = _margins(self.counts)
        union = truth + predicted - together
        found = union > 0
        return float((together[found] / union[found]).mean()) if bool(found.any()) else 0.0

    def details(self) -> dict[str, float]:
        """Share of the pixels that count whose class is right."""
        if isinstance(self.counts, int) or not int(self.counts.sum()):
            return {"pixel accuracy": 0.0}
        return {"pixel accuracy": float(self.counts.diagonal().sum() / self.counts.sum())}


class Segmentation:
    """The task of naming what every pixel shows.

    Args:
        name: in the registry.
        confidence: maps logits to one number an image; see `maqee.tasks.pixels`.
        label_smoothing: share of the uniform distribution in the targets of the loss.
    """

    metric_name = "mIoU"
    score_name = "image IoU"
    targets = "masks"
    on_device = True

    def __init__(
        self,
        name: str = "segmentation",
        confidence: Callable[[Tensor], Tensor] = pixels.mean_confidence,
        label_smoothing: float = 0.0,
    ) -> None:
        self.name = name
        self._confidence = confidence
        self.label_smoothing = label_smoothing

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy, the mean over the pixels of an image that count; 0 for an image without any."""

        def losses(logits: Tensor, mask: Tensor) -> Tensor:
            each = F.cross_entropy(
                stretch(logits, _size(mask)),
                mask.long(),
                reduction="none",
                ignore_index=IGNORE,
                label_smoothing=self.label_smoothing,
            )
            return each.sum(dim=(1, 2)) / (mask != IGNORE).sum(dim=(1, 2)).clamp(min=1)

        return _by_pieces(losses, output, target)

    def confidence(self, output: Tensor) -> Tensor:
        """One number an image, at the token grid."""
        _check_picture(output)
        return self._confidence(output)

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean IoU of each image alone, over the classes that its mask has; 1 for an image without pixels that count.

        Its mean over images is not the metric, which pools the counts of all images before it divides.
        """
        together, truth, predicted = _margins(confusion(output, target))  # each (batch, classes)
        present = truth > 0
        iou = torch.where(present, together / (truth + predicted - together).clamp(min=1), 0.0)
        count = present.sum(dim=1)
        return torch.where(count > 0, iou.sum(dim=1) / count.clamp(min=1), 1.0).float()

    def distillation(self, output: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """T^2 KL(teacher || student), the mean over the cells of the grid, which is the same for all exits.

        Pixels to be ignored cannot be told from here and take part: the teacher has an opinion on them too.
        """
        _check_picture(output)
        student = F.log_softmax(output.float() / temperature, dim=1)
        wanted = F.log_softmax(teacher.float() / temperature, dim=1)
        divergence = F.kl_div(student, wanted, reduction="none", log_target=True).sum(dim=1)
        return divergence.mean(dim=(1, 2)) * temperature**2

    def metric(self) -> MeanIou:
        """Mean IoU, with pixel accuracy beside it."""
        return MeanIou()

    def smoothed(self, amount: float) -> Segmentation:
        """The same with label smoothing."""
        return Segmentation(self.name, self._confidence, amount)


def confusion(output: Tensor, target: Tensor) -> Tensor:
    """Pixels of each image by true and predicted class: (batch, classes, classes), rows are truth."""
    classes = output.shape[1]

    def counts(logits: Tensor, mask: Tensor) -> Tensor:
        predicted = stretch(logits, _size(mask)).max(dim=1).indices  # as argmax, which is seven times slower on a CPU
        image = torch.arange(len(mask), device=mask.device)[:, None, None]
        cells = (image * classes + mask.long()) * classes + predicted
        # Pixels to be ignored go into one cell behind all others; picking the rest out would make a GPU wait.
        cells = torch.where(mask == IGNORE, len(mask) * classes * classes, cells)
        found = torch.bincount(cells.flatten(), minlength=len(mask) * classes * classes + 1)
        return found[:-1].view(len(mask), classes, classes)

    return _by_pieces(counts, output, target)


def _margins(counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(..., classes, classes) to pixels rightly found, truly there, and predicted, each (..., classes)."""
    return counts.diagonal(dim1=-2, dim2=-1).double(), counts.sum(dim=-1).double(), counts.sum(dim=-2).double()


def _size(mask: Tensor) -> tuple[int, int]:
    return int(mask.shape[1]), int(mask.shape[2])


def _by_pieces(function: Callable[[Tensor, Tensor], Tensor], output: Tensor, target: Tensor) -> Tensor:
    """Apply a per-image function to as many images at a time as memory allows."""
    _check_picture(output)
    if target.ndim != 3:
        raise MaqeeError(f"Segmentation needs a mask for each image, not targets of shape {tuple(target.shape)[1:]}.")
    most = _AT_ONCE_ON_CPU if output.device.type == "cpu" else _AT_ONCE
    count = max(1, most // (output.shape[1] * target.shape[1] * target.shape[2]))
    if count >= len(output):
        return function(output, target)
    return torch.cat([function(*piece) for piece in zip(output.split(count), target.split(count), strict=True)])


def _check_picture(output: Tensor) -> None:
    if output.ndim != 4:
        raise MaqeeError(
            f"Segmentation needs a picture of logits, not outputs of shape {tuple(output.shape)[1:]}: "
            "give the model segformer exits."
        )


# A plan, a trace and the recipe of a run hold the name, so that the name says for ever which confidence decides.
CONFIDENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "segmentation": pixels.mean_confidence,
    "segmentation-median": pixels.median_confidence,
    "segmentation-quantile": pixels.low_confidence,
    "segmentation-quantile-10": pixels.lowest_confidence,
    "segmentation-patch": pixels.patch_confidence,
    "segmentation-patch-10": pixels.region_confidence,
    "segmentation-margin": pixels.margin_confidence,
    "segmentation-entropy": pixels.entropy_confidence,
    "segmentation-sure": pixels.sure_share,
    "segmentation-classes": pixels.class_confidence,
    "segmentation-iou": pixels.expected_iou,
}
for _name, _confidence in CONFIDENCES.items():
    tasks.register(_name)(Segmentation(_name, _confidence))
