"""A small model that knows its digits, and quick options to compress it with."""

from __future__ import annotations

from typing import Any

import torch

from maqee.compression import CompressOptions, ModelMeasure, RecoverySettings
from maqee.data import Augmentation, ImageSet, TrainBatches, eval_batches, open_data
from maqee.evaluation.record import Batch
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import ViTConfig
from maqee.models.load import build_backbone
from maqee.quant import QuantSettings, quantize
from maqee.tasks import tasks
from maqee.training.recipe import AugmentSection

TASK = tasks["classification"]
WIDTHS = (3, 4, 5, 6)
SIZES = {"image_size": (16, 16), "patch_size": 4, "channels": 1, "dim": 32, "depth": 4, "heads": 2, "mlp_dim": 64}


def digits(part: str, count: int | None = None) -> ImageSet:
    """Some of the bundled digits."""
    found: ImageSet = getattr(open_data("digits"), part)
    return found if count is None else found.select(range(count))


def trained_model(steps: int = 120) -> EarlyExitModel:
    """Four blocks, exits after two of them, trained for a moment: right more often than not, never sure."""
    torch.manual_seed(0)
    backbone = build_backbone(ViTConfig(**SIZES, num_classes=10))  # type: ignore[arg-type]
    model = add_exits(backbone, "mlp", positions=(1, 2)).train()
    batches = TrainBatches(digits("train"), backbone.preprocessing, Augmentation(), 64, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        images, targets = batches.batch(step)
        losses = [TASK.loss(output, targets).mean() for output in model.forward_all(images).outputs]
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()
    return model.eval()


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
