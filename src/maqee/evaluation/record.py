"""One pass over a data set that records what every exit says, and the metrics of exits and policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.apq.cost import bops, closed_blocks, full_precision_bops, total_macs, utilization
from maqee.data import ImageSet, eval_batches
from maqee.evaluation.results import ExitFigures, PolicyFigures
from maqee.exits import EarlyExitModel, Network, all_outputs, backbone_of, exit_blocks_of
from maqee.models import Backbone
from maqee.parts import Part
from maqee.policy import Policy
from maqee.progress import Steps, steps
from maqee.tasks import Metric, Task
from maqee.widths import BitSettings

HIDDEN_AT_ONCE = 256 * 197 * 4096  # numbers inside an MLP in a batch of evaluation: 256 images in a ViT-L
ATTENTION_AT_ONCE = 16 * 256 * 197**2  # attention weights of a block, which quantization has to write out
ON_CPU = 2_500_000  # either of them on a processor, for its caches: 8 images in a ViT-S

Batch = tuple[Tensor, Tensor]  # normalised images and targets
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ExitRecord:
    """What every exit said about every image: arrays of (images, exits + 1), the last column at full depth.

    Attributes:
        confidence: what decides whether to leave.
        score: how good the prediction is, by the task; for classification 1 where it is correct, else 0.
        loss: the task's.
    """

    confidence: Floats
    score: Floats
    loss: Floats


@dataclass(frozen=True)
class Measured:
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
    hidden, attention = shape.tokens * shape.mlp_dim, shape.heads * shape.tokens * (shape.window**2 or shape.tokens)
    if next(backbone.parameters()).device.type == "cpu":
        return max(1, min(256, ON_CPU // max(hidden, attention)))
    return max(1, min(256, HIDDEN_AT_ONCE // hidden, ATTENTION_AT_ONCE // attention))


def evaluation_batches(network: Network, data: ImageSet, batch_size: int | None = None) -> Iterator[Batch]:
    """All images in order, as the network wants them, on its device."""
    backbone, device = backbone_of(network), next(network.parameters()).device
    return eval_batches(data, backbone.preprocessing, batch_size or evaluation_batch(backbone), device)


def run_exits(network: Network, batches: Iterable[Batch]) -> Iterator[tuple[list[Tensor], Tensor]]:
    """The outputs of every exit for batch after batch, full depth last, with the targets."""
    network.eval()
    for images, targets in batches:
        with torch.inference_mode():
            outputs = all_outputs(network, images)
        yield outputs, targets


def measure_exits(
    network: Network,
    data: ImageSet,
    task: Task,
    policies: Sequence[Policy] = (),
    batch_size: int | None = None,
    show: bool = False,
) -> Measured:
    """Run every exit on every image, and take the metric of each exit and of each policy."""
    with steps(f"evaluating {data.name}", len(data), enabled=show) as bar:
        return measure_batches(network, evaluation_batches(network, data, batch_size), task, policies, bar)


def measure_batches(
    network: Network, batches: Iterable[Batch], task: Task, policies: Sequence[Policy] = (), bar: Steps | None = None
) -> Measured:
    """The same for images that are prepared already."""
    rows: list[list[Tensor]] = [[], [], []]
    exits, under = [task.metric() for _ in exit_blocks_of(network)], [task.metric() for _ in policies]
    done = 0
    for outputs, targets in run_exits(network, batches):
        confidence = torch.stack([task.confidence(output) for output in outputs], dim=1)  # (batch, exits + 1)
        rows[0].append(confidence)
        rows[1].append(torch.stack([task.score(output, targets) for output in outputs], dim=1).float())
        rows[2].append(torch.stack([task.loss(output, targets) for output in outputs], dim=1))
        for metric, output in zip(exits, outputs, strict=True):
            metric.update(output, targets)
        by_exit = torch.stack(outputs) if policies else None  # (exits + 1, batch, ...)
        sure = confidence[:, :-1].cpu().numpy() if policies else None  # a device is only waited for if there are any
        for metric, policy in zip(under, policies, strict=True):
            assert by_exit is not None
            assert sure is not None
            chosen = torch.from_numpy(policy.choose(sure)).to(targets.device)
            metric.update(by_exit[chosen, torch.arange(len(chosen), device=targets.device)], targets)
        done += len(confidence)
        if bar is not None:
            bar.update(done)
    return Measured(ExitRecord(*(torch.cat(parts).cpu().numpy() for parts in rows)), exits, under)


def metric_by_exit(network: Network, data: ImageSet, task: Task, batch_size: int | None = None) -> dict[str, float]:
    """The task's metric at every exit and at full depth, by block number."""
    found = measure_exits(network, data, task, batch_size=batch_size).exits
    blocks = exit_blocks_of(network)
    return {
        f"{task.metric_name}@{block}": round(metric.compute(), 6) for block, metric in zip(blocks, found, strict=True)
    }


def metric_figures(task: Task, metric: Metric) -> dict[str, float]:
    """The metric under its name, and what else it has to tell."""
    figures = {task.metric_name: metric.compute()} | metric.details()
    return {name: round(value, 6) for name, value in figures.items()}


def figures_under(
    model: EarlyExitModel, record: ExitRecord, policy: Policy, bits: BitSettings, metrics: Mapping[str, float]
) -> PolicyFigures:
    """A policy's metric, mean exit and cost.

    Args:
        model: for its costs.
        record: what decides who leaves where.
        policy: the thresholds.
        bits: of every part.
        metrics: figures by name.
    """
    return record_figures(record, policy, model.exit_blocks, model.parts(), bits, metrics)


def record_figures(
    record: ExitRecord,
    policy: Policy,
    exit_blocks: Sequence[int],
    parts: Sequence[Part],
    bits: BitSettings,
    metrics: Mapping[str, float],
) -> PolicyFigures:
    """The same where the model is not at hand: its exits, full depth last, and what its parts cost."""
    chosen = policy.choose(record.confidence[:, :-1])
    mass = np.bincount(chosen, minlength=len(exit_blocks)) / chosen.size
    reach = utilization(mass.tolist(), exit_blocks, exit_blocks[-1])
    closed = closed_blocks(policy.thresholds, exit_blocks)
    cost = bops(parts, bits, reach, closed)
    return PolicyFigures(
        thresholds=policy.thresholds,
        metrics=metrics,
        mean_exit=round(float(mass @ np.asarray(exit_blocks)), 4),
        exit_mass=tuple(round(float(share), 6) for share in mass),
        macs=total_macs(parts, reach, closed),
        bops=cost,
        share_of_full_precision=cost / full_precision_bops(parts, exit_blocks[-1]),
    )


def measure_policies(
    model: EarlyExitModel, data: ImageSet, task: Task, bits: BitSettings, policies: Sequence[Policy], show: bool = False
) -> tuple[Measured, list[PolicyFigures]]:
    """Every exit, and the figures of every policy, from one pass."""
    measured = measure_exits(model, data, task, policies, show=show)
    return measured, policy_rows(model, measured, task, bits, policies)


def policy_rows(
    model: EarlyExitModel, measured: Measured, task: Task, bits: BitSettings, policies: Sequence[Policy]
) -> list[PolicyFigures]:
    """The figures of the policies that were measured in a pass."""
    return [
        figures_under(model, measured.record, policy, bits, metric_figures(task, metric))
        for policy, metric in zip(policies, measured.policies, strict=True)
    ]


def exit_rows(model: EarlyExitModel, measured: Measured, task: Task) -> list[ExitFigures]:
    """The metric at every exit and, last, at full depth."""
    return [
        ExitFigures(block=block, metrics=metric_figures(task, metric))
        for block, metric in zip(model.exit_blocks, measured.exits, strict=True)
    ]
