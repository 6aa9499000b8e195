"""Grids and weights as kernels read them: codes moved into the range of a signed byte, factors folded, prepared once.

A grid's code c stands for (c - zero) * scale. Stored is c - shift, with the shift as near to the zero point as a signed
byte allows. Mostly they are equal, and a sum of products of stored codes is the sum that is wanted. What is left
of the zero point (`rest`; 8-bit grids nearly always have one) is made up for after the sum: with a and w stored,

    sum (a - ra) (w - rw) = sum a w - ra sum w - rw sum a + n ra rw,

where the sums of w are known beforehand and those of a come with the codes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.quant.coded import WeightState
from maqee.quant.common_steps import join_groups
from maqee.quant.grids import Grid, UniformGrid

LOWEST, HIGHEST = -128, 127  # of a signed byte
INT32_LARGEST = 2**31 - 1
EXACT = 2**22  # sums below it become float by their bits (`rounding`)
PAD_INPUTS, PAD_OUTPUTS = 64, 128  # weights are filled up with zeros to whole tiles, so that kernels need no masks


class StoredGrid(NamedTuple):
    """A uniform grid with codes in signed bytes."""

    scale: float
    zero: int
    top: int

    @classmethod
    def of(cls, grid: Grid) -> StoredGrid | None:
        """The same grid; None where its codes cannot be stored so."""
        if not isinstance(grid, UniformGrid) or grid.scale.numel() != 1 or grid.zero.numel() != 1:
            return None
        zero = float(grid.zero)
        return cls(float(grid.scale), int(zero), grid.top) if zero.is_integer() and abs(zero) < EXACT else None

    @property
    def shift(self) -> int:
        """What is taken off a code."""
        return min(max(self.zero, self.top - HIGHEST), -LOWEST)

    @property
    def rest(self) -> int:
        """What is left of the zero point."""
        return self.zero - self.shift

    @property
    def low(self) -> int:
        """The smallest multiple of the scale."""
        return -self.zero

    @property
    def high(self) -> int:
        """The largest one."""
        return self.top - self.zero

    @property
    def largest(self) -> int:
        """The larger of the two, without its sign."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class StoredWeights:
    """A linear layer, prepared. Weights in two groups have the columns of the first group first.

    Attributes:
        grid: of the input.
        inputs: columns of the layer.
        outputs: rows of the layer.
        codes: (outputs, inputs) of stored codes, both padded.
        split: padded columns of the first group; all of them where there is one group.
        columns: (padded inputs,) which column of the input each one is, -1 for padding; None where that is the order.
        scale: (groups, padded outputs) what a sum is multiplied by.
        bias: (padded outputs,).
        correction: (groups, padded outputs) what is added to a sum of stored codes; None where all are 0.
        rests: (groups, padded outputs) what the sums of stored input codes are multiplied by; None where all are 0.
        small: whether all sums are below 2^22.
        short: whether sums of the second group fit into 16 bits.
    """

    grid: StoredGrid
    inputs: int
    outputs: int
    codes: Tensor
    split: int
    columns: Tensor | None
    scale: Tensor
    bias: Tensor
    correction: Tensor | None
    rests: Tensor | None
    small: bool
    short: bool

    @property
    def width(self) -> int:
        """Padded inputs: how long rows of input codes are."""
        return int(self.codes.shape[1])

    @property
    def corrected(self) -> bool:
        """Whether anything is added to sums of stored codes."""
        return self.correction is not None

    @property
    def groups(self) -> int:
        """Groups of columns with scales of their own."""
        return int(self.scale.shape[0])

    def as_shares_of(self, grids: list[StoredGrid]) -> StoredWeights:
        """The same layer with outputs counted from 0, the lowest step of a grid, to 1, the highest.

        Each grid is for an equal share of the outputs.
        """
        count = self.outputs // len(grids)
        inverse, zero = torch.ones_like(self.bias), torch.zeros_like(self.bias)
        for number, grid in enumerate(grids):
            here = slice(number * count, (number + 1) * count)
            inverse[here], zero[here] = 1 / (grid.scale * grid.top), grid.zero / grid.top
        return replace(self, scale=self.scale * inverse, bias=self.bias * inverse + zero)


def prepare_weights(state: WeightState, grid: StoredGrid) -> StoredWeights | None:
    """Weights as kernels read them; None where sums do not fit into int32."""
    codes, zero, scale, group = _in_one_group(state)
    outputs, inputs = codes.shape
    shift = zero.clamp(2**state.bits - 1 - HIGHEST, -LOWEST)
    orders = _orders(group, inputs)
    parts, corrections, rests, largest, last = [], [], [], 0, 0
    for number, order in enumerate(orders):
        columns = order[order >= 0].to(codes.device)
        rest = zero[:, number] - shift[:, number]
        chosen = codes[:, columns]
        last = int((chosen - zero[:, number, None]).abs().sum(dim=1).max()) * grid.largest
        largest = max(largest, last)
        stored = chosen - shift[:, number, None]
        corrections.append(-grid.rest * stored.sum(dim=1) + len(columns) * grid.rest * rest)
        rests.append(rest)
        parts.append(torch.nn.functional.pad(stored, (0, len(order) - len(columns))))
    if largest > INT32_LARGEST:
        return None
    small = largest < EXACT
    padding = -outputs % PAD_OUTPUTS
    bias = torch.zeros(outputs, device=codes.device) if state.bias is None else state.bias
    joined = torch.cat(orders)
    plain = len(orders) == 1 and inputs % PAD_INPUTS == 0
    return StoredWeights(
        grid=grid,
        inputs=inputs,
        outputs=outputs,
        codes=_pad_rows(torch.cat(parts, dim=1), padding).to(torch.int8).contiguous(),
        split=len(orders[0]),
        columns=None if plain else joined.to(device=codes.device, dtype=torch.int32),
        scale=_pad(scale.t() * torch.tensor(grid.scale, device=codes.device), padding).contiguous(),
        bias=_pad(bias, padding),
        correction=_table(corrections, padding),
        rests=_table(rests, padding),
        small=small,
        short=last < 2**15,
    )


def _in_one_group(state: WeightState) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Codes (out, in), zero points and scales (out, groups) and groups of columns.

    Two groups become one where their steps are whole multiples of a common one and the codes still fit into a byte.
    """
    if (joined := join_groups(state)) is not None:
        return joined.numbers, torch.zeros_like(state.zero[:, :1]), joined.step[:, None], None
    return state.codes.to(torch.int64), state.zero.to(torch.int64), state.scale, state.group


def _orders(group: Tensor | None, inputs: int) -> list[Tensor]:
    """The columns of each group in their order, -1 for padding."""
    if group is None:
        chosen = [torch.arange(inputs)]
    else:
        chosen = [(group.cpu() == number).nonzero().flatten() for number in (0, 1)]
    return [torch.nn.functional.pad(columns, (0, -len(columns) % PAD_INPUTS), value=-1) for columns in chosen]


def _table(rows: list[Tensor], padding: int) -> Tensor | None:
    """Whole numbers (groups, padded outputs); None where all are 0."""
    table = torch.stack(rows)
    return _pad(_wrapped(table), padding).contiguous() if bool(table.any()) else None


def _pad(x: Tensor, padding: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, padding))


def _pad_rows(x: Tensor, padding: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, 0, 0, padding))


def _wrapped(x: Tensor) -> Tensor:
    """Whole numbers as int32 has them: sums that leave its range on the way come back at the end."""
    return ((x + 2**31) % 2**32 - 2**31).to(torch.int32)
