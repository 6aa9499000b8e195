"""AdamW with the parameter groups transformers want, and the learning rate over time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from maqee.training.recipe import StageSection


def learning_rate(step: int, steps: int, warmup: int) -> float:
    """Factor on the peak rate: linear warm-up, then half a cosine down to zero.

    Example:
        >>> [round(learning_rate(step, 4, 0), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def make_optimizer(
    parameters: Iterable[tuple[str, nn.Parameter]],
    settings: StageSection,
    depth: int,
    device: torch.device,
    factor: Callable[[str], float] = lambda name: 1.0,
) -> torch.optim.AdamW:
    """One group for each pair of rate and decay; each group carries its peak rate as "peak".

    Args:
        parameters: what is trained, with names.
        settings: rates and decay.
        depth: number of blocks.
        device: where the parameters lie.
        factor: by name, what the peak rate of a parameter is multiplied by.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in parameters:
        peak = factor(name) * peak_rate(name, settings, depth)
        decay = settings.weight_decay if has_decay(name, parameter) else 0.0
        groups.setdefault((peak, decay), []).append(parameter)
    listed: list[dict[str, Any]] = [
        {"params": members, "lr": peak, "peak": peak, "weight_decay": decay}
        for (peak, decay), members in groups.items()
    ]
    return torch.optim.AdamW(listed, betas=(0.9, 0.999), fused=device.type == "cuda")


def peak_rate(name: str, settings: StageSection, depth: int) -> float:
    """The rate of a parameter: blocks lose a factor for each step from the end.

    Heads and classifier have their own.
    """
    if re.search(r"(^|\.)(head|heads)\.", name):
        return settings.head_lr or settings.lr
    match = re.search(r"\.blocks\.(\d+)\.|\.merges\.(\d+)\.", name)
    if match is None:
        level = 0 if ".embedding." in name else depth + 1
    else:
        level = int(match[1]) + 1 if match[1] else int(match[2])
    return settings.lr * settings.layer_decay ** (depth + 1 - level)


def has_decay(name: str, parameter: nn.Parameter) -> bool:
    """Matrices decay; biases, norms, tokens, positions, bias tables and steps of grids do not."""
    special = ("class_token", "distillation_token", "detection_tokens", "register_tokens", "anchors")
    placed = ("position", "mid_position", "bias_table", "gain")
    return parameter.ndim > 1 and name.rpartition(".")[2] not in (*special, *placed)


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Scale every group's peak rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor
