"""Grids and coded weights as modules: they move between devices, are saved with the model, and can learn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid, straight_through
from maqee.quant.sums import reach
from maqee.quant.terms import largest_code

KINDS: dict[str, type[UniformGrid] | type[LogSqrt2Grid] | type[TwinGrid]] = {
    "uniform": UniformGrid,
    "log-sqrt2": LogSqrt2Grid,
    "twin": TwinGrid,
}
HALF_BYTE = 4


class GridModule(nn.Module):
    """A grid whose numbers are buffers: they move between devices and are saved with the model.

    Attributes:
        scale: the step, of a uniform or logarithmic grid.
    """

    scale: Tensor
    _reach: float | None = None

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

    @property
    def grid(self) -> Grid:
        """The grid as a value."""
        values: dict[str, Any] = {**self.settings, **dict(self.named_buffers())}
        return KINDS[self.kind](**values)

    @property
    def bits(self) -> int:
        """Width of a code."""
        return int(self.settings["bits"])

    @property
    def reach(self) -> float:
        """The largest of the whole numbers in its terms; infinite if there are fractions. Found out once."""
        if self._reach is None:
            self._reach = largest_code(self.grid)
        return self._reach

    def forward(self, x: Tensor) -> Tensor:
        """Round to the grid, with straight-through gradients."""
        return straight_through(self.grid, x)

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        self._reach = None
        super()._load_from_state_dict(*args, **options)


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

    PARTS = ("stored", "scale", "zero", "group", "bias")

    stored: Tensor  # codes; two to a byte where they are short, since a layer keeps one set for every pair of widths
    scale: Tensor
    zero: Tensor
    group: Tensor | None
    bias: Tensor | None
    _reach: float | None = None

    def __init__(
        self, bits: int, codes: Tensor, scale: Tensor, zero: Tensor, group: Tensor | None, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.bits = bits
        self.shape = tuple(codes.shape)
        whole = codes.detach().to(torch.uint8)
        self.register_buffer("stored", _two_to_a_byte(whole) if bits <= HALF_BYTE else whole.contiguous())
        self.register_buffer("scale", scale.detach().float().contiguous())
        self.register_buffer("zero", zero.detach().to(torch.int32))
        self.register_buffer("group", None if group is None else group.to(torch.uint8))
        self.register_buffer("bias", None if bias is None else bias.detach().float().clone())

    @classmethod
    def stored_as(cls, bits: int, shape: tuple[int, ...], parts: Mapping[str, Tensor | None]) -> WeightState:
        """The reverse of the module's buffers, for a layer with weights of this shape (out, in)."""
        stored = parts["stored"]
        assert stored is not None
        state = cls.__new__(cls)
        nn.Module.__init__(state)
        state.bits, state.shape = bits, shape
        for name in cls.PARTS:
            state.register_buffer(name, parts.get(name))
        return state

    @property
    def codes(self) -> Tensor:
        """(out, in) whole numbers from 0 to 2^bits - 1."""
        if self.bits > HALF_BYTE:
            return self.stored
        both = torch.cat([self.stored & 15, self.stored >> HALF_BYTE])
        return both[: math.prod(self.shape)].view(self.shape)

    @property
    def reach(self) -> float:
        """The largest of the codes, less their zero points; infinite if there are fractions. Found out once."""
        if self._reach is None:
            self._reach = reach(self.zero, 2**self.bits - 1)
        return self._reach

    def grid(self) -> UniformGrid:
        """The grid of every weight: scales spread over the columns."""
        scale, zero = self.scale, self.zero.to(self.scale.dtype)
        if self.group is not None:
            columns = self.group.long()
            scale, zero = scale[:, columns], zero[:, columns]
        return UniformGrid(self.bits, scale, zero)

    def values(self) -> Tensor:
        """(out, in) weights that the codes stand for."""
        return self.grid().values(self.codes.to(self.scale.dtype))


class FittedWidth(nn.Module):
    """What a layer keeps for one width of its input: the input's grid, and the weights that go with it.

    A method may move the channels' differences from the input into the weights: then the norm in front of the layer
    and the float weights are others for every width of the input.

    Attributes:
        input: grid of the input; None is float.
        states: weights by their width.
        norm: (2, in) weight and bias of the norm in front of the layer; None where every width has the same.
        ratio: (in,) what the columns of the float weights are multiplied by; None is 1.
        bias: (out,) bias that goes with them; None where every width has the same.
    """

    norm: Tensor | None
    ratio: Tensor | None
    bias: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.input: GridModule | None = None
        self.states = nn.ModuleDict()
        for name in ("norm", "ratio", "bias"):
            self.register_buffer(name, None)


def _two_to_a_byte(codes: Tensor) -> Tensor:
    """Codes below 16: the first half of them in the low bits, the second in the high ones."""
    flat = codes.flatten()
    half = (flat.numel() + 1) // 2
    high = torch.zeros_like(flat[:half])
    high[: flat.numel() - half] = flat[half:]
    return flat[:half] | (high << HALF_BYTE)


def rounded_state(rows: Tensor, grid: UniformGrid, group: Tensor | None, bias: Tensor | None) -> WeightState:
    """Weights (out, in) rounded to the nearest point of a grid with scales (out, groups)."""
    scale, zero = grid.scale, grid.zero
    spread = UniformGrid(grid.bits, scale, zero) if group is None else UniformGrid(
        grid.bits, scale[:, group.long()], zero[:, group.long()]
    )  # fmt: skip
    return WeightState(grid.bits, spread.codes(rows), scale, zero, group, bias)
