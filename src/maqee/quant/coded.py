"""Grids and coded weights as modules: they move between devices, are saved with the model, and can learn."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid, learnable, straight_through

KINDS: dict[str, type[UniformGrid] | type[LogSqrt2Grid] | type[TwinGrid]] = {
    "uniform": UniformGrid,
    "log-sqrt2": LogSqrt2Grid,
    "twin": TwinGrid,
}
GAIN_RATE = 10.0  # steps are multiplied by exp(10 gain), so that they learn ten times as fast as weights of size 1


class GridModule(nn.Module):
    """A grid whose numbers are buffers: they move between devices and are saved with the model.

    Attributes:
        scale: the step, of a uniform or logarithmic grid.
        gain: while training, what the step of a uniform grid learns; else None.
    """

    scale: Tensor

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.kind = next(name for name, kind in KINDS.items() if isinstance(grid, kind))
        self.settings: dict[str, Any] = {}
        for field in fields(grid):
            value = getattr(grid, field.name)
            if isinstance(value, Tensor):
                self.register_buffer(field.name, value.detach().clone().contiguous())
            else:
                self.settings[field.name] = value
        self.gain: nn.Parameter | None = None

    @property
    def grid(self) -> Grid:
        """The grid as a value."""
        values: dict[str, Any] = {**self.settings, **dict(self.named_buffers())}
        if self.gain is not None:
            values["scale"] = values["scale"] * torch.exp(GAIN_RATE * self.gain)
        return KINDS[self.kind](**values)

    @property
    def bits(self) -> int:
        """Width of a code."""
        return int(self.settings["bits"])

    def forward(self, x: Tensor) -> Tensor:
        """Round to the grid, with straight-through gradients."""
        grid = self.grid
        if self.gain is not None and isinstance(grid, UniformGrid):
            return learnable(grid, x)
        return straight_through(grid, x)


class WeightState(nn.Module):
    """Weights of one layer at one width: codes, scales and the bias that belongs to them.

    Args:
        bits: width of a code.
        codes: (out, in), whole numbers from 0 to 2^bits - 1.
        scale: (out, groups).
        zero: (out, groups), whole numbers.
        group: (in,) which group each input column belongs to; None when there is one group.
        bias: (out,) or None; methods that compensate errors keep another bias for each width.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor
    group: Tensor | None
    bias: Tensor | None

    def __init__(
        self, bits: int, codes: Tensor, scale: Tensor, zero: Tensor, group: Tensor | None, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("codes", codes.to(torch.uint8))
        self.register_buffer("scale", scale.detach().float().contiguous())
        self.register_buffer("zero", zero.detach().to(torch.int32))
        self.register_buffer("group", None if group is None else group.to(torch.uint8))
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())
        self.gain: nn.Parameter | None = None  # (out * groups,), while training

    def learned_scale(self) -> Tensor:
        """(out, groups) steps, with what was learnt so far."""
        return self.scale if self.gain is None else self.scale * torch.exp(GAIN_RATE * self.gain).view_as(self.scale)

    def grid(self) -> UniformGrid:
        """The grid of every weight: scales spread over the columns."""
        scale, zero = self.learned_scale(), self.zero.to(self.scale.dtype)
        if self.group is not None:
            columns = self.group.long()
            scale, zero = scale[:, columns], zero[:, columns]
        return UniformGrid(self.bits, scale, zero)

    def values(self) -> Tensor:
        """(out, in) weights that the codes stand for."""
        return self.grid().values(self.codes.to(self.scale.dtype))


def rounded_state(rows: Tensor, grid: UniformGrid, group: Tensor | None, bias: Tensor | None) -> WeightState:
    """Weights (out, in) rounded to the nearest point of a grid with scales (out, groups)."""
    scale, zero = grid.scale, grid.zero
    spread = UniformGrid(grid.bits, scale, zero) if group is None else UniformGrid(
        grid.bits, scale[:, group.long()], zero[:, group.long()]
    )  # fmt: skip
    return WeightState(grid.bits, spread.codes(rows), scale, zero, group, bias)
