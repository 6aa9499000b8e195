"""What a training step of a quantized model costs, as a multiple of the same step in float."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from maqee.bench.result import BenchResult
from maqee.compression.recovery import RecoveryStage
from maqee.device import pick_device, synchronize
from maqee.environment import describe_environment
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.models.compiling import compile_each
from maqee.quant import quantize
from maqee.quant.learning import start_learning
from maqee.tasks import tasks


@dataclass(frozen=True, kw_only=True)
class RecoveryTiming(BenchResult):
    """A training step, quantized and in float.

    Attributes:
        model: its name.
        batch: images of a step.
        compiled: whether torch.compile was used.
        bits: of the quantized model.
        seconds: of a step, "float" and "quantized".
        multiple: how many times as long the quantized step takes.
        gradient_norm: of the first quantized step, "eager" and "compiled".
    """

    model: str
    batch: int
    compiled: bool
    bits: str
    seconds: Mapping[str, float]
    multiple: float
    gradient_norm: Mapping[str, float]


def bench_recovery(
    model: str = "vit-small",
    *,
    batch_size: int = 256,
    repeats: int = 10,
    device: str | None = None,
    compile: bool = True,
) -> RecoveryTiming:
    """Time steps of self-distillation with straight-through rounding (W4A4), and without any, side by side.

    Both compute every exit, the teacher's pass, gradients and an AdamW step; in bfloat16 on a GPU.

    Args:
        model: a backbone.
        batch_size: images of a step.
        repeats: timed repetitions.
        device: the GPU if there is one.
        compile: use torch.compile on both sides.
    """
    target = pick_device(device)
    torch.manual_seed(0)
    teacher = add_exits(load_backbone(model, num_classes=100)).to(target).eval()
    size = teacher.backbone.preprocessing.image_size
    images = torch.randn(batch_size, teacher.backbone.config.channels, *size, device=target)
    labels = torch.randint(100, (batch_size,), device=target)
    quantized = quantize(teacher, images[:4], "rtn")
    start_learning(quantized)
    plain = add_exits(load_backbone(model, num_classes=100)).to(target)
    assert isinstance(quantized.model, EarlyExitModel)
    norms = {"eager": _gradient_norm(_stage(quantized.model, teacher), images, labels)}
    if compile:
        for network in (teacher, plain, quantized.model):
            compile_each(network.compilable())
    stages = {name: _stage(network, teacher) for name, network in (("float", plain), ("quantized", quantized.model))}
    if compile:
        norms["compiled"] = _gradient_norm(stages["quantized"], images, labels)
    seconds = {name: _time(stage, images, labels, repeats) for name, stage in stages.items()}
    return RecoveryTiming(
        model=model,
        batch=batch_size,
        compiled=compile,
        bits="W4A4",
        seconds={name: round(value, 6) for name, value in seconds.items()},
        multiple=round(seconds["quantized"] / seconds["float"], 4),
        gradient_norm={name: round(value, 5) for name, value in norms.items()},
        environment=describe_environment(),
    )


def _stage(network: EarlyExitModel, teacher: EarlyExitModel) -> RecoveryStage:
    exits = len(network.exit_blocks)
    return RecoveryStage(network, tasks["classification"], teacher, [1 / exits] * exits).train()


def _gradient_norm(stage: RecoveryStage, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Of the first step: compiled must agree with eager."""
    device = images.device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        loss, _ = stage(images, labels, 0)
    loss.backward()
    norm = float(torch.nn.utils.get_total_norm([p.grad for p in stage.parameters() if p.grad is not None]))
    stage.zero_grad(set_to_none=True)
    return norm


def _time(stage: RecoveryStage, images: torch.Tensor, labels: torch.Tensor, repeats: int) -> float:
    """Median seconds of a step, after three to warm up."""
    device = images.device
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-6, fused=device.type == "cuda")
    times = []
    for step in range(repeats + 3):
        synchronize(device)
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, _ = stage(images, labels, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])
