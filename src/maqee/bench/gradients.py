"""Are compiled gradients right? Compare them with eager ones on the device at hand.

Written after cuDNN attention under torch.compile gave gradients wrong by orders of magnitude on an H200, silently.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maqee.environment import describe_environment
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.models.compiling import compile_each
from maqee.tasks import Classification
from maqee.training.runner import make_runner
from maqee.training.stages import Joint

TOLERANCE = {"fp32": 1e-3, "bf16": 5e-2}  # of the relative difference; a wrong gradient is off by far more than 1


def compare_gradients(
    model: str, exits: str, batch_size: int, precision: str, device: str | None = None, image_size: int | None = None
) -> dict[str, Any]:
    """Gradient norms of the joint loss, eager and compiled, and the relative distance between the two gradients."""
    runner = make_runner(precision, device)
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
    return {
        "model": model,
        "exits": exits,
        "precision": precision,
        "batch_size": batch_size,
        "device": runner.device.type,
        "eager_norm": float(eager.norm()),
        "compiled_norm": float(compiled.norm()),
        "relative_difference": difference,
        "tolerance": TOLERANCE[precision],
        "agree": difference <= TOLERANCE[precision],
        "environment": describe_environment(),
    }


def _gradient(network: EarlyExitModel, images: Tensor, labels: Tensor, runner: Any) -> Tensor:
    """The gradient of the odd-step loss (all exits) as one long vector."""
    network.zero_grad(set_to_none=True)
    stage = Joint(network, Classification()).train()
    with runner.autocast():
        loss, _ = stage(images, labels, 1)
    runner.backward(loss)
    pieces = [parameter.grad.flatten() for parameter in network.parameters() if parameter.grad is not None]
    return torch.cat(pieces).double()
