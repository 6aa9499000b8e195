"""Where a training step runs: in this process alone, or as one of several that accelerate launched."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from maqee.device import pick_device
from maqee.errors import MaqeeError
from maqee.processor import check_reduced_precision


class Runner(Protocol):
    """What the loop needs to know of the hardware."""

    device: torch.device
    rank: int
    world: int

    def prepare(self, module: nn.Module) -> nn.Module:
        """Move the module to the device and, with several processes, average its gradients among them."""

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The precision of the forward pass."""

    def backward(self, loss: Tensor) -> None:
        """Gradients."""

    def wait(self) -> None:
        """Until all processes are here."""


class PlainRunner:
    """One process, one device."""

    rank, world = 0, 1

    def __init__(self, precision: str, device: torch.device) -> None:
        check_reduced_precision(precision, device)
        self.precision, self.device = precision, device

    def prepare(self, module: nn.Module) -> nn.Module:
        """Only the move."""
        return module.to(self.device)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 where asked for; weights stay float32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def backward(self, loss: Tensor) -> None:
        """Gradients."""
        loss.backward()

    def wait(self) -> None:
        """Nobody to wait for."""


class AcceleratedRunner:
    """One of several processes: `accelerate launch -m maqee train RECIPE.yaml`."""

    def __init__(self, precision: str) -> None:
        try:
            from accelerate import Accelerator, DistributedDataParallelKwargs
        except ImportError as error:
            raise MaqeeError("Several processes need accelerate: pip install 'maqee[train]'.") from error
        # Stages alternate which heads take part in a step, and frozen parts never do.
        options = DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)
        self.accelerator = Accelerator(
            mixed_precision="bf16" if precision == "bf16" else "no", kwargs_handlers=[options]
        )
        self.device: torch.device = self.accelerator.device
        check_reduced_precision(precision, self.device)
        self.rank: int = self.accelerator.process_index
        self.world: int = self.accelerator.num_processes

    def prepare(self, module: nn.Module) -> nn.Module:
        """Wrapped for distributed training."""
        return self.accelerator.prepare_model(module)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """As accelerate was set up."""
        return self.accelerator.autocast()

    def backward(self, loss: Tensor) -> None:
        """Gradients, averaged over the processes."""
        self.accelerator.backward(loss)

    def wait(self) -> None:
        """Until all processes are here."""
        self.accelerator.wait_for_everyone()


def make_runner(precision: str, device: str | None = None) -> Runner:
    """The runner that fits how this process was started."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return AcceleratedRunner(precision)
    return PlainRunner(precision, pick_device(device))
