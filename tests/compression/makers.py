"""What the model of the digits is measured on, and quick options to compress it with."""

from __future__ import annotations

from typing import Any

from maqee.compression import CompressOptions, ModelMeasure, RecoverySettings
from maqee.data import ImageSet, eval_batches, open_data
from maqee.evaluation.record import Batch
from maqee.exits import EarlyExitModel
from maqee.quant import QuantSettings, quantize
from maqee.tasks import tasks
from maqee.training.recipe import AugmentSection

TASK = tasks["classification"]
WIDTHS = (3, 4, 5, 6)


def digits(part: str, count: int | None = None) -> ImageSet:
    """Some of the bundled digits."""
    found: ImageSet = getattr(open_data("digits"), part)
    return found if count is None else found.select(range(count))


def batches_of(data: ImageSet, model: EarlyExitModel, size: int) -> list[Batch]:
    """Normalised images and targets."""
    return list(eval_batches(data, model.backbone.preprocessing, size))


def make_measure(
    model: EarlyExitModel, method: str = "repq", size: int = 16, count: int = 40, **more: Any
) -> ModelMeasure:
    """A measure on the first calibration digits."""
    batches = batches_of(digits("calibration", count), model, size)
    quantized = quantize(model, batches[0][0], method, QuantSettings(widths=WIDTHS))
    return ModelMeasure(model, quantized, batches, TASK, "hash", **more)


def quick_options(**changes: Any) -> CompressOptions:
    """A search on few images."""
    recovery = RecoverySettings(batch_size=32, lr=1e-3, augment=AugmentSection())
    values: dict[str, Any] = {"method": "repq", "fit_images": 8, "samples": 60, "scored": 30, "recovery": recovery}
    return CompressOptions(**{**values, **changes})
