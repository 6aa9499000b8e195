"""What several tests share."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result


def randomize(module: nn.Module, std: float = 0.1) -> nn.Module:
    """Give every parameter and running statistic an unremarkable random value, so that no term vanishes."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(std * torch.randn(buffer.shape, generator=generator))
            if name.endswith("running_var"):
                buffer.copy_(1 + torch.rand(buffer.shape, generator=generator))
    return module.eval()


def max_difference(one: Tensor, other: Tensor) -> float:
    """Largest absolute difference; shapes must agree."""
    assert one.shape == other.shape
    return float((one.detach() - other.detach()).abs().max())


def invoke(*arguments: str) -> Result:
    """Run the command line in this process, with the exit codes a shell would see."""
    from maqee.cli import app
    from maqee.errors import MaqeeError

    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, MaqeeError):
        result.exit_code = 2
    return result
