"""How much faster a model gets by really stopping: executed early exit against full depth, side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from maqee.apq.cost import closed_blocks, total_macs, utilization
from maqee.bench.result import BenchResult
from maqee.bench.timing import time_together
from maqee.device import check_precision, pick_device
from maqee.environment import describe_environment
from maqee.exits import NEVER, Policy, add_exits
from maqee.models import load_backbone
from maqee.processor import check_reduced_precision
from maqee.runtime import compile_roads, use_cuda_graphs

MEAN_EXITS = (6.0, 7.26, 9.0)


@dataclass(frozen=True, kw_only=True)
class ThroughputRow:
    """One policy against full depth.

    Attributes:
        mean_exit: mean block after which images leave.
        exit_mass: share of the images that leaves at each exit and at full depth.
        full_depth_images_per_second: of the backbone without exits.
        images_per_second: of the model that stops.
        speedup: ratio of the two.
        ideal_speedup: ratio of multiply-accumulates, heads included.
        share_of_ideal: how much of it is reached.
    """

    mean_exit: float
    exit_mass: tuple[float, ...]
    full_depth_images_per_second: float
    images_per_second: float
    speedup: float
    ideal_speedup: float
    share_of_ideal: float


@dataclass(frozen=True, kw_only=True)
class ThroughputComparison(BenchResult):
    """Early exit, executed, against full depth.

    Attributes:
        model: its name.
        exits: heads of its exits.
        batch_size: images.
        precision: fp32 or bf16.
        compiled: whether both sides were compiled.
        cuda_graphs: whether graphs were replayed between exits.
        device: where it ran.
        executed: True; nothing is simulated here.
        rows: one a policy.
    """

    model: str
    exits: str
    batch_size: int
    precision: str
    compiled: bool
    cuda_graphs: bool
    device: str
    executed: bool = True
    rows: tuple[ThroughputRow, ...]


def bench_exits(
    model: str = "vit-small",
    *,
    exits: str = "lgvit",
    batch_size: int = 256,
    mean_exits: Sequence[float] = MEAN_EXITS,
    precision: str = "bf16",
    device: str | None = None,
    compile: bool = True,
    graphs: bool = True,
    repeats: int = 20,
) -> ThroughputComparison:
    """Images a second of `run` under policies with given mean exits, and of the same backbone at full depth.

    Weights are random, so thresholds are set on the very batch that is timed, such that the wanted shares leave; all
    of `run` is executed. "ideal" is the ratio of multiply-accumulates, heads included.

    Args:
        model: a backbone.
        exits: heads of its exits.
        batch_size: images.
        mean_exits: wanted mean blocks after which images leave.
        precision: "fp32" or "bf16".
        device: the GPU if there is one.
        compile: use torch.compile on both sides.
        graphs: replay CUDA graphs between exits, on a GPU.
        repeats: timed repetitions.
    """
    target = pick_device(device)
    check_reduced_precision(check_precision(precision), target)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    torch.manual_seed(0)
    network = add_exits(load_backbone(model), exits).to(target, dtype).eval()
    images = torch.randn(batch_size, 3, *network.backbone.config.image_size, device=target, dtype=dtype)
    full: Callable[[Tensor], Tensor] = copy.deepcopy(network.backbone)
    if compile:
        full = torch.compile(full)
        compile_roads(network)
    if graphs and target.type == "cuda":
        use_cuda_graphs(network)
    with torch.inference_mode():
        confidences = torch.stack([network.confidence(output) for output in network.forward_all(images).outputs])
    rows = []
    for mean_exit in mean_exits:
        policy = policy_for_mass(confidences[:-1].float().cpu(), mass_for_mean(network.exit_blocks, mean_exit))
        taken = network.run(images, policy).exit.cpu().numpy()
        mass = np.bincount(taken, minlength=network.num_exits + 1) / batch_size
        reach = utilization(mass.tolist(), network.exit_blocks, network.backbone.depth)
        closed = closed_blocks(policy.thresholds, network.exit_blocks)
        ideal = total_macs(network.backbone.parts()) / total_macs(network.parts(), reach, closed)
        jobs: list[Callable[[], Any]] = [partial(full, images), partial(network.run, images, policy)]
        with torch.inference_mode():
            times = time_together(jobs, target, repeats)
        ratio = times[0] / times[1]
        rows.append(
            ThroughputRow(
                mean_exit=float(mass @ np.asarray(network.exit_blocks)),
                exit_mass=tuple(mass.tolist()),
                full_depth_images_per_second=batch_size / times[0],
                images_per_second=batch_size / times[1],
                speedup=ratio,
                ideal_speedup=ideal,
                share_of_ideal=ratio / ideal,
            )
        )
    return ThroughputComparison(
        model=model,
        exits=exits,
        batch_size=batch_size,
        precision=precision,
        compiled=compile,
        cuda_graphs=graphs and target.type == "cuda",
        device=target.type,
        rows=tuple(rows),
        environment=describe_environment(),
    )


def mass_for_mean(blocks: tuple[int, ...], mean: float) -> np.ndarray:
    """The most even distribution over exits with this mean depth: shares proportional to exp(-t * block)."""
    ends = np.asarray(blocks, dtype=np.float64)
    mean = float(np.clip(mean, ends[0] + 0.05, ends[-1] - 0.05))

    def shares(tilt: float) -> np.ndarray:
        weights = np.exp(-tilt * (ends - ends.mean()))
        return weights / weights.sum()

    tilt = brentq(lambda tilt: shares(tilt) @ ends - mean, -20, 20)
    return shares(tilt)


def policy_for_mass(confidences: Tensor, mass: np.ndarray) -> Policy:
    """Thresholds at which the wanted share of these very samples leaves at each exit.

    Args:
        confidences: (exits, samples).
        mass: wanted shares, full depth last.
    """
    samples = confidences.shape[1]
    alive = torch.ones(samples, dtype=torch.bool)
    thresholds = []
    for row, share in zip(confidences, mass[:-1], strict=True):
        count = min(round(float(share) * samples), int(alive.sum()))
        values = row[alive].sort(descending=True).values
        threshold = min(float(values[count - 1]), 1.0) if count else NEVER
        thresholds.append(threshold)
        alive &= row < threshold
    return Policy(tuple(thresholds))
