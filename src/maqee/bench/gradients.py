"""Are compiled gradients right? Compare them with eager ones on the device at hand.

Written after cuDNN attention under torch.compile gave gradients wrong by orders of magnitude on an H200, silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from maqee.bench.result import BenchResult
from maqee.device import check_precision
from maqee.environment import describe_environment
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.models.compiling import compile_each
from maqee.tasks import Classification
from maqee.training.runner import make_runner
from maqee.training.stages import Joint

TOLERANCE = {"fp32": 1e-3, "bf16": 5e-2}  # of the relative difference; a wrong gradient is off by far more than 1


@dataclass(frozen=True, kw_only=True)
class GradientComparison(BenchResult):
    """Eager and compiled gradients of the joint loss.

    Attributes:
        model: its name.
        exits: heads of its exits.
        precision: fp32 or bf16.
        batch_size: images.
        device: where it ran.
        eager_norm: norm of the eager gradient.
        compiled_norm: norm of the compiled one.
        relative_difference: distance of the two, relative to the eager norm.
        tolerance: the most that rounding explains.
        agree: whether the difference is within it.
    """

    model: str
    exits: str
    precision: str
    batch_size: int
    device: str
    eager_norm: float
    compiled_norm: float
    relative_difference: float
    tolerance: float
    agree: bool


def bench_gradients(
    model: str = "vit-small",
    *,
    exits: str = "lgvit",
    batch_size: int = 8,
    precision: str = "bf16",
    device: str | None = None,
    image_size: int | None = None,
) -> GradientComparison:
    """Compare compiled with eager gradients of the joint loss on the machine at hand; weights and images are random.

    Args:
        model: a backbone.
        exits: heads of its exits.
        batch_size: images.
        precision: "fp32" or "bf16".
        device: the GPU if there is one.
        image_size: input size; the model's own when left out.
    """
    runner = make_runner(check_precision(precision), device)
    torch.manual_seed(0)
    network = add_exits(load_backbone(model, image_size=image_size), exits).to(runner.device)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(batch_size, network.backbone.config.channels, *network.backbone.config.image_size,
                         generator=generator).to(runner.device)  # fmt: skip
    labels = torch.randint(0, network.backbone.config.num_classes, (batch_size,), generator=generator).to(runner.device)
    eager = _gradient(network, images, labels, runner)
    compile_each(network.compilable())
    compiled = _gradient(network, images, labels, runner)
    difference = float((compiled - eager).norm() / eager.norm())
    return GradientComparison(
        model=model,
        exits=exits,
        precision=precision,
        batch_size=batch_size,
        device=runner.device.type,
        eager_norm=float(eager.norm()),
        compiled_norm=float(compiled.norm()),
        relative_difference=difference,
        tolerance=TOLERANCE[precision],
        agree=difference <= TOLERANCE[precision],
        environment=describe_environment(),
    )


def _gradient(network: EarlyExitModel, images: Tensor, labels: Tensor, runner: Any) -> Tensor:
    """The gradient of the odd-step loss (all exits) as one long vector."""
    network.zero_grad(set_to_none=True)
    stage = Joint(network, Classification()).train()
    with runner.autocast():
        loss, _ = stage(images, labels, 1)
    runner.backward(loss)
    pieces = [parameter.grad.flatten() for parameter in network.parameters() if parameter.grad is not None]
    return torch.cat(pieces).double()
