"""Quantized operands as whole numbers times steps, and their products.

A uniform grid is one term, (code - zero) * scale. A twin grid has one for each region. A logarithmic grid has two for
every sixteen exponents: powers of two as integers, times one of two steps that the exponent's parity picks. Weights in
two groups are two terms with different columns empty. The product of two operands is a sum over pairs of terms: sums of
products of integers first, then one multiplication by the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.quant.grids import SQRT2, Grid, LogSqrt2Grid, TwinGrid, UniformGrid

SHIFTS = 8  # of a term of a logarithmic grid: integers from 1 to 2^8 keep the sums short


class Term(NamedTuple):
    """Whole numbers (in a float tensor) and the step that they count: one number, or one for each output channel."""

    codes: Tensor
    step: Tensor


def has_terms(grid: Grid) -> bool:
    """Whether numbers on the grid have a common step, or a few; a grid for each channel has too many."""
    return not isinstance(grid, UniformGrid) or (grid.scale.numel() == 1 and grid.zero.numel() == 1)


def is_quick(grid: Grid) -> bool:
    """Whether the terms are few enough for everyday use."""
    return has_terms(grid) and not (isinstance(grid, LogSqrt2Grid) and grid.bits > 5)


def operand_terms(grid: Grid, x: Tensor) -> list[Term]:
    """Round numbers to a grid and write them as terms."""
    codes = grid.codes(x)
    if isinstance(grid, UniformGrid):
        return [Term(codes - grid.zero, grid.scale)]
    if isinstance(grid, TwinGrid):
        fine = codes < grid.levels
        low = torch.where(fine, -codes if grid.signed else codes, 0.0)
        return [Term(low, grid.fine), Term(torch.where(fine, 0.0, codes - grid.levels), grid.coarse)]
    terms, even = [], codes % 2 == 0
    for first in range(0, grid.none, 2 * SHIFTS):  # exponents first .. first + 15; the code of 0 is in no term
        here = codes < min(first + 2 * SHIFTS, grid.none)
        if first:
            here &= codes >= first
        if first and not is_quick(grid) and not here.any():  # wide grids reach far below what occurs
            continue
        shift = torch.ceil((codes - first if first else codes) / 2)
        integers = torch.exp2(SHIFTS - shift)
        step = grid.scale * 2.0 ** -(SHIFTS + first // 2)
        for these, factor in ((here & even, 1.0), (here & ~even, SQRT2)):
            terms.append(Term(torch.where(these, integers, 0.0), step * factor))
    return terms


def weight_terms(codes: Tensor, scale: Tensor, zero: Tensor, group: Tensor | None) -> list[Term]:
    """Codes (out, in) with scales and zero points (out, groups) as one term for each group of columns."""
    terms = []
    for number in range(scale.shape[1]):
        offset = codes.to(scale.dtype) - zero[:, number, None].to(scale.dtype)
        if group is not None:
            offset = torch.where(group == number, offset, 0.0)
        terms.append(Term(offset, scale[:, number]))
    return terms


def multiply_terms(left: Sequence[Term], right: Sequence[Term], multiply: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The product of two operands; output channels with steps of their own are last in what `multiply` returns."""
    total: Tensor | None = None
    for one in left:
        for other in right:
            part = multiply(one.codes, other.codes) * (one.step * other.step)
            total = part if total is None else total + part
    assert total is not None
    return total
