"""A grid while it trains: its step learns, and its width is a number in a tensor.

Widths differ from layer to layer. As plain numbers, and as names of modules, they would have torch.compile make a
graph of its own for every block; so a layer that trains holds its grids under the same names at every width.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from maqee.quant.coded import WeightState
from maqee.quant.common_steps import step_multiples
from maqee.quant.grids import Grid, UniformGrid, learnable, straight_through

GAIN_RATE = 10.0  # steps are multiplied by exp(10 gain), so that they learn ten times as fast as weights of size 1


class LearningGrid(nn.Module):
    """A grid that rounds with straight-through gradients.

    Args:
        grid: where it starts.
        gain: shape of what its steps learn, which broadcasts to them; None lets them stay as they are.
        group: (in,) which of the steps (out, groups) each column takes; None where steps need no spreading.
    """

    scale: Tensor
    width: Tensor
    group: Tensor | None

    def __init__(self, grid: Grid, gain: tuple[int, ...] | None = None, group: Tensor | None = None) -> None:
        super().__init__()
        self.form = type(grid)
        held = {field.name: getattr(grid, field.name) for field in fields(grid) if field.name != "bits"}
        self.tensors = tuple(name for name, value in held.items() if isinstance(value, Tensor))
        self.settings = {name: value for name, value in held.items() if name not in self.tensors}
        for name in self.tensors:
            self.register_buffer(name, held[name].detach().clone())
        device = held[self.tensors[0]].device
        self.register_buffer("width", torch.tensor(float(grid.bits), device=device))
        self.register_buffer("group", None if group is None else group.long())
        self.gain = None if gain is None else nn.Parameter(torch.zeros(gain, device=device))

    def learnt_scale(self) -> Tensor:
        """The steps as they are by now."""
        return self.scale if self.gain is None else self.scale * torch.exp(GAIN_RATE * self.gain)

    def grid(self) -> Grid:
        """The grid as it is by now."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.tensors}
        if self.gain is not None:
            values["scale"] = self.learnt_scale()
        if self.group is not None:
            values = {name: value[:, self.group] for name, value in values.items()}
        return self.form(bits=self.width, **values, **self.settings)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Round to the grid; gradients pass to x where it is inside, and to the step where that learns."""
        grid = self.grid()
        if self.gain is not None and isinstance(grid, UniformGrid):
            return learnable(grid, x)
        return straight_through(grid, x)


def learning_grid(grid: Grid, learn_steps: bool) -> LearningGrid:
    """The grid of an input or of an operand; only steps of uniform grids learn."""
    return LearningGrid(grid, () if learn_steps and isinstance(grid, UniformGrid) else None)


def learning_weights(state: WeightState, learn_steps: bool) -> LearningGrid:
    """The grid of a layer's weights (out, in), with steps (out, groups)."""
    tied = step_multiples(state.bits, state.scale) is not None  # steps of both groups, and stay so
    gain = (len(state.scale), 1 if tied else state.scale.shape[1]) if learn_steps else None
    return LearningGrid(UniformGrid(state.bits, state.scale, state.zero.to(state.scale.dtype)), gain, state.group)
