"""The calibration pass of a model in full precision, so that its thresholds are chosen as those of any other."""

from __future__ import annotations

import numpy as np

from maqee.apq import Trace
from maqee.data import ImageSet
from maqee.evaluation.record import measure_exits
from maqee.exits import EarlyExitModel
from maqee.models.digest import weights_digest
from maqee.tasks import Task
from maqee.widths import BitSettings


def float_trace(network: EarlyExitModel, images: ImageSet, task: Task) -> Trace:
    """One pass of the model as it came; both halves of the trace are its own."""
    record = measure_exits(network, images, task).record
    nothing = np.zeros((len(images), network.backbone.depth), np.float32)
    return Trace(
        exit_blocks=network.exit_blocks,
        float_confidence=record.confidence,
        confidence=record.confidence,
        float_loss=record.loss,
        loss=record.loss,
        float_correct=record.score,
        correct=record.score,
        drift=nothing,
        noise=nothing,
        parts=tuple(network.parts()),
        bits=BitSettings.uniform(32, 32, network.backbone.depth),
        task=task.name,
        model=weights_digest(network),
    )
