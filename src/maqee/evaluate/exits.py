"""Figures of every exit, and of policies, from one pass over the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maqee.apq.cost import BitSettings, bops, total_macs, utilization
from maqee.data import ImageSet, eval_batches
from maqee.exits import EarlyExitModel, Policy
from maqee.models import Backbone
from maqee.progress import steps
from maqee.tasks import Task


class ExitRecord(NamedTuple):
    """What every exit said about every image: arrays of (exits + 1, images), the last row at full depth."""

    confidence: Tensor
    correct: Tensor
    loss: Tensor


@torch.inference_mode()
def record_exits(
    model: EarlyExitModel,
    data: ImageSet,
    task: Task,
    batch_size: int = 256,
    device: torch.device | None = None,
    show: bool = False,
) -> ExitRecord:
    """Run every exit on every image and keep confidence, correctness and loss (classification)."""
    device = device or next(model.parameters()).device
    model.eval()
    rows: list[list[Tensor]] = [[], [], []]
    with steps(f"evaluating {data.name}", len(data), enabled=show) as bar:
        for images, targets in eval_batches(data, model.backbone.preprocessing, batch_size, device):
            outputs = [output.float() for output in model.forward_all(images).outputs]
            rows[0].append(torch.stack([task.confidence(output) for output in outputs]).cpu())
            rows[1].append(torch.stack([output.argmax(dim=-1) == targets for output in outputs]).cpu())
            rows[2].append(torch.stack([task.loss(output, targets) for output in outputs]).cpu())
            bar.update(sum(part.shape[1] for part in rows[0]))
    return ExitRecord(*(torch.cat(parts, dim=1) for parts in rows))


@torch.inference_mode()
def evaluate_exits(
    model: Backbone | EarlyExitModel,
    data: ImageSet,
    task: Task,
    batch_size: int = 256,
    device: torch.device | None = None,
) -> dict[str, float]:
    """The task's metric at every exit and at full depth, by block number."""
    device = device or next(model.parameters()).device
    model.eval()
    backbone = model.backbone if isinstance(model, EarlyExitModel) else model
    blocks = model.exit_blocks if isinstance(model, EarlyExitModel) else (backbone.depth,)
    metrics = {block: task.metric() for block in blocks}
    for images, targets in eval_batches(data, backbone.preprocessing, batch_size, device):
        outputs = model.forward_all(images).outputs if isinstance(model, EarlyExitModel) else [model(images)]
        for metric, output in zip(metrics.values(), outputs, strict=True):
            metric.update(output, targets)
    return {f"{task.metric_name}@{block}": round(metric.compute(), 6) for block, metric in metrics.items()}


def policy_figures(model: EarlyExitModel, record: ExitRecord, policy: Policy, bits: BitSettings) -> dict[str, Any]:
    """Accuracy, mean exit and cost under a policy, from the record alone."""
    chosen = policy.choose(record.confidence[:-1])
    accuracy = record.correct.gather(0, chosen[None])[0].float().mean()
    mass = np.bincount(chosen.numpy(), minlength=model.num_exits + 1) / chosen.numel()
    blocks = np.asarray(model.exit_blocks)
    reach = utilization(mass.tolist(), model.exit_blocks, model.backbone.depth)
    parts = model.parts()
    return {
        "thresholds": list(policy.thresholds),
        "accuracy": round(float(accuracy), 6),
        "mean_exit": round(float(mass @ blocks), 4),
        "exit_mass": [round(float(share), 6) for share in mass],
        "macs": total_macs(parts, reach),
        "bops": bops(parts, bits, reach),
    }


def threshold_sweep(
    model: EarlyExitModel, record: ExitRecord, thresholds: Sequence[float], bits: BitSettings
) -> list[dict[str, Any]]:
    """One shared threshold for all exits, from eager to never."""
    return [policy_figures(model, record, Policy.same(value, model.num_exits), bits) for value in thresholds]
