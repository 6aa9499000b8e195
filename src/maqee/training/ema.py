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
        live = module.state_dict()  # shares memory with the module, so it is looked up once and not at every step
        self.averages = {name: tensor.detach().clone() for name, tensor in live.items()}
        floating = [name for name, tensor in live.items() if tensor.is_floating_point()]
        self._averaged = [self.averages[name] for name in floating], [live[name] for name in floating]
        self._copied = [(self.averages[name], live[name]) for name in live if name not in floating]

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages towards the module's present state."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        averages, live = self._averaged
        torch._foreach_lerp_(averages, live, 1 - decay)
        for copy, original in self._copied:
            copy.copy_(original)

    def state(self) -> dict[str, Tensor]:
        """The averages."""
        return self.averages
