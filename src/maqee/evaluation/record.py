"""Figures of every exit, and of policies, from one pass over the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maqee.apq.cost import BitSettings, bops, total_macs, utilization
from maqee.data import ImageSet, eval_batches
from maqee.exits import EarlyExitModel, Policy
from maqee.models import Backbone
from maqee.progress import steps
from maqee.tasks import Metric, Task

TOKENS_AT_ONCE = 256 * 197  # tokens in a batch of evaluation: 256 images of 224 pixels
ATTENTION_AT_ONCE = 16 * 256 * 197**2  # attention weights of a block, which quantization has to write out
FEWER_ON_CPU = 16  # quantized layers there are twice as fast with what fits into the caches


class ExitRecord(NamedTuple):
    """What every exit said about every image: arrays of (exits + 1, images), the last row at full depth.

    Attributes:
        confidence: what decides whether to leave.
        score: how good the prediction is, by the task; for classification 1 where it is correct, else 0.
        loss: the task's.
    """

    confidence: Tensor
    score: Tensor
    loss: Tensor

    @property
    def correct(self) -> Tensor:
        """The score under the name it has in classification."""
        return self.score


class Measured(NamedTuple):
    """One pass over the images.

    Attributes:
        record: of every exit and image.
        exits: the task's metric at every exit and, last, at full depth.
        policies: the task's metric under every policy asked for. Where a metric is not the mean of scores (mean IoU),
            it cannot be had from the record.
    """

    record: ExitRecord
    exits: list[Metric]
    policies: list[Metric]


def evaluation_batch(backbone: Backbone) -> int:
    """Images in a batch on the backbone's device, so that larger images do not need more memory."""
    shape = backbone.token_shape(1)
    attention = shape.heads * shape.tokens * (shape.window**2 or shape.tokens)
    fewer = FEWER_ON_CPU if next(backbone.parameters()).device.type == "cpu" else 1
    fitting = min(TOKENS_AT_ONCE // shape.tokens, ATTENTION_AT_ONCE // attention) // fewer
    return max(1, min(256, fitting))


@torch.inference_mode()
def measure_exits(
    model: EarlyExitModel,
    data: ImageSet,
    task: Task,
    policies: Sequence[Policy] = (),
    batch_size: int | None = None,
    device: torch.device | None = None,
    show: bool = False,
) -> Measured:
    """Run every exit on every image, and take the metric of each exit and of each policy."""
    device = device or next(model.parameters()).device
    model.eval()
    size = batch_size or evaluation_batch(model.backbone)
    rows: list[list[Tensor]] = [[], [], []]
    exits, under = [task.metric() for _ in model.exit_blocks], [task.metric() for _ in policies]
    with steps(f"evaluating {data.name}", len(data), enabled=show) as bar:
        for images, targets in eval_batches(data, model.backbone.preprocessing, size, device):
            outputs = torch.stack([output.float() for output in model.forward_all(images).outputs])
            confidence = torch.stack([task.confidence(output) for output in outputs])
            rows[0].append(confidence.cpu())
            rows[1].append(torch.stack([task.score(output, targets) for output in outputs]).cpu())
            rows[2].append(torch.stack([task.loss(output, targets) for output in outputs]).cpu())
            for metric, output in zip(exits, outputs, strict=True):
                metric.update(output, targets)
            for metric, policy in zip(under, policies, strict=True):
                chosen = policy.choose(confidence[:-1])
                metric.update(outputs[chosen, torch.arange(len(images), device=device)], targets)
            bar.update(sum(part.shape[1] for part in rows[0]))
    return Measured(ExitRecord(*(torch.cat(parts, dim=1) for parts in rows)), exits, under)


def record_exits(
    model: EarlyExitModel,
    data: ImageSet,
    task: Task,
    batch_size: int | None = None,
    device: torch.device | None = None,
    show: bool = False,
) -> ExitRecord:
    """Run every exit on every image and keep confidence, score and loss."""
    return measure_exits(model, data, task, (), batch_size, device, show).record


@torch.inference_mode()
def evaluate_exits(
    model: Backbone | EarlyExitModel,
    data: ImageSet,
    task: Task,
    batch_size: int | None = None,
    device: torch.device | None = None,
) -> dict[str, float]:
    """The task's metric at every exit and at full depth, by block number."""
    device = device or next(model.parameters()).device
    model.eval()
    backbone = model.backbone if isinstance(model, EarlyExitModel) else model
    blocks = model.exit_blocks if isinstance(model, EarlyExitModel) else (backbone.depth,)
    metrics = {block: task.metric() for block in blocks}
    size = batch_size or evaluation_batch(backbone)
    for images, targets in eval_batches(data, backbone.preprocessing, size, device):
        outputs = model.forward_all(images).outputs if isinstance(model, EarlyExitModel) else [model(images)]
        for metric, output in zip(metrics.values(), outputs, strict=True):
            metric.update(output, targets)
    return {f"{task.metric_name}@{block}": round(metric.compute(), 6) for block, metric in metrics.items()}


def metric_figures(task: Task, metric: Metric) -> dict[str, float]:
    """The metric under its name, and what else it has to tell."""
    figures = {task.metric_name: metric.compute()} | metric.details()
    return {name: round(value, 6) for name, value in figures.items()}


def policy_figures(
    model: EarlyExitModel,
    record: ExitRecord,
    policy: Policy,
    bits: BitSettings,
    metric: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The metric, mean exit and cost under a policy.

    Args:
        model: for its costs.
        record: what decides who leaves where.
        policy: the thresholds.
        bits: of every part.
        metric: figures by name; left out, the mean score, which in classification is the accuracy.
    """
    chosen = policy.choose(record.confidence[:-1])
    score = float(record.score.gather(0, chosen[None])[0].float().mean())
    mass = np.bincount(chosen.numpy(), minlength=model.num_exits + 1) / chosen.numel()
    blocks = np.asarray(model.exit_blocks)
    reach = utilization(mass.tolist(), model.exit_blocks, model.backbone.depth)
    parts = model.parts()
    return {
        "thresholds": list(policy.thresholds),
        **(metric if metric is not None else {"accuracy": round(score, 6)}),
        "mean_exit": round(float(mass @ blocks), 4),
        "exit_mass": [round(float(share), 6) for share in mass],
        "macs": total_macs(parts, reach),
        "bops": bops(parts, bits, reach),
    }
