"""How much faster a model gets by really stopping: executed early exit against full depth, side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from maqee.apq.cost import total_macs, utilization
from maqee.bench.timing import time_together
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.exits import Policy, add_exits
from maqee.models import load_backbone
from maqee.models.compiling import compile_each
from maqee.processor import check_reduced_precision
from maqee.runtime import use_cuda_graphs


def compare_throughput(
    model: str,
    exits: str,
    batch_size: int,
    mean_exits: list[float],
    precision: str,
    device: str | None = None,
    compile: bool = True,
    graphs: bool = True,
    repeats: int = 20,
) -> dict[str, Any]:
    """Images a second of `run` under policies with given mean exits, and of the same backbone at full depth.

    Weights are random, so thresholds are set on the very batch that is timed, such that the wanted shares leave; all
    of `run` is executed. "ideal" is the ratio of multiply-accumulates, heads included.
    """
    target = pick_device(device)
    check_reduced_precision(precision, target)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    torch.manual_seed(0)
    network = add_exits(load_backbone(model), exits).to(target, dtype).eval()
    images = torch.randn(batch_size, 3, *network.backbone.config.image_size, device=target, dtype=dtype)
    full: Callable[[Tensor], Tensor] = copy.deepcopy(network.backbone)
    if compile:
        full = torch.compile(full)
        compile_each(network.compilable(), dynamic=True)
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
        ideal = total_macs(network.backbone.parts()) / total_macs(network.parts(), reach)
        jobs: list[Callable[[], Any]] = [partial(full, images), partial(network.run, images, policy)]
        with torch.inference_mode():
            times = time_together(jobs, target, repeats)
        ratio = times[0] / times[1]
        rows.append(
            {
                "mean_exit": float(mass @ np.asarray(network.exit_blocks)),
                "exit_mass": mass.tolist(),
                "full_depth_images_per_second": batch_size / times[0],
                "images_per_second": batch_size / times[1],
                "speedup": ratio,
                "ideal_speedup": ideal,
                "share_of_ideal": ratio / ideal,
            }
        )
    return {
        "model": model,
        "exits": exits,
        "batch_size": batch_size,
        "precision": precision,
        "compiled": compile,
        "cuda_graphs": graphs and target.type == "cuda",
        "device": target.type,
        "executed": True,
        "rows": rows,
        "environment": describe_environment(),
    }


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
        threshold = float(values[count - 1]) if count else 2.0
        thresholds.append(threshold)
        alive &= row < threshold
    return Policy(tuple(thresholds))
