"""An exponential moving average of weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Ema:
    """Keeps averages of a module's floating-point state; other buffers follow the module.

    Early on the decay is smaller, so that the average does not remember the start: min(decay, (1 + n) / (10 + n)).
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.averages = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Move the averages towards the module's present state."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        state = module.state_dict()
        names = [name for name, average in self.averages.items() if average.is_floating_point()]
        torch._foreach_lerp_([self.averages[n] for n in names], [state[n] for n in names], 1 - decay)
        for name, average in self.averages.items():
            if not average.is_floating_point():
                average.copy_(state[name])

    def state(self) -> dict[str, Tensor]:
        """The averages."""
        return self.averages
