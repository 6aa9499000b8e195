"""Quantized operands as whole numbers times steps, and their products.

A uniform grid is one term, (code - zero) * scale. A twin grid has one for each region. A logarithmic grid has two for
every sixteen exponents: powers of two as integers, times one of two steps that the exponent's parity picks. Weights in
two groups are two terms with different columns empty. The product of two operands is a sum over pairs of terms: sums of
products of integers first, then one multiplication by the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.quant.grids import SQRT2, Grid, LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.quant.sums import reach

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


def largest_code(grid: Grid) -> float:
    """The largest of the whole numbers in a grid's terms; infinite if there are fractions."""
    if isinstance(grid, UniformGrid):
        return reach(grid.zero, grid.top)
    return grid.levels - 1 if isinstance(grid, TwinGrid) else 2**SHIFTS


def operand_terms(grid: Grid, x: Tensor) -> list[Term]:
    """Round numbers to a grid and write them as terms."""
    if x.is_cuda and not torch.compiler.is_compiling() and _has_kernel(grid, x):  # a compiler joins passes by itself
        return terms_in_one_pass(grid, x)
    codes = grid.codes(x)  # made here, so that it may be written over: passes over memory are most of the work
    if isinstance(grid, UniformGrid):
        return [Term(codes.sub_(grid.zero), grid.scale)]
    if isinstance(grid, TwinGrid):
        fine = codes < grid.levels
        low = torch.where(fine, -codes if grid.signed else codes, 0.0)
        return [Term(low, grid.fine), Term(torch.where(fine, 0.0, codes - grid.levels), grid.coarse)]
    terms = []
    parity = codes - (codes * 0.5).floor_().mul_(2)  # 1 for odd codes
    for first, last, step in _parts(grid):
        here = codes <= last
        if first:
            here &= codes >= first
        if first and not is_quick(grid) and not here.any():  # wide grids reach far below what occurs
            continue
        powers = torch.add(codes, parity).mul_(-0.5).add_(SHIFTS + first // 2).exp2_()  # half the code, rounded up
        powers = torch.where(here, powers, 0.0)
        odd = powers * parity
        terms += [Term(powers.sub_(odd), step), Term(odd, step * SQRT2)]
    return terms


def terms_in_one_pass(grid: Grid, x: Tensor) -> list[Term]:
    """The same by Triton, of float32 numbers on a uniform or logarithmic grid."""
    from maqee.quant.gpu_rounding import even_and_odd_powers, uniform_offsets  # not above: few have Triton

    if isinstance(grid, UniformGrid):
        return [Term(uniform_offsets(x, grid.scale, grid.zero, grid.top), grid.scale)]
    assert isinstance(grid, LogSqrt2Grid)
    terms = []
    for first, last, step in _parts(grid):
        powers = even_and_odd_powers(x, grid.scale, first, last, SHIFTS)
        terms += [Term(power, step * factor) for power, factor in zip(powers, (1.0, SQRT2), strict=True)]
    return terms


def _has_kernel(grid: Grid, x: Tensor) -> bool:
    if isinstance(grid, TwinGrid) or not is_quick(grid) or x.dtype != torch.float32 or grid.scale.dtype != x.dtype:
        return False
    return _triton_is_there()


@cache
def _triton_is_there() -> bool:
    return find_spec("triton") is not None


def _parts(grid: LogSqrt2Grid) -> list[tuple[int, int, Tensor]]:
    """Sixteen exponents at a time: the first and last of them, and the step of even ones. The code of 0 is in none."""
    return [
        (first, min(first + 2 * SHIFTS, grid.none) - 1, grid.scale * 2.0 ** -(SHIFTS + first // 2))
        for first in range(0, grid.none, 2 * SHIFTS)
    ]


def weight_terms(codes: Tensor, scale: Tensor, zero: Tensor, group: Tensor | None) -> list[Term]:
    """Codes (out, in) with scales and zero points (out, groups) as one term for each group of columns."""
    terms = []
    for number in range(scale.shape[1]):
        offset = codes.to(scale.dtype) - zero[:, number, None].to(scale.dtype)
        if group is not None:
            offset = torch.where(group == number, offset, 0.0)
        terms.append(Term(offset, scale[:, number]))
    return terms


def multiply_terms(
    left: Sequence[Term],
    right: Sequence[Term],
    multiply: Callable[[Tensor, Tensor], Tensor],
    bias: Tensor | None = None,
) -> Tensor:
    """The product of two operands, and a bias; output channels with steps of their own are last in what comes out."""
    pairs = [(one, other) for one in left for other in right]
    parts = [multiply(one.codes, other.codes) for one, other in pairs]
    steps = [one.step * other.step for one, other in pairs]
    if parts[0].is_cuda and not torch.compiler.is_compiling() and _triton_is_there():
        from maqee.quant.gpu_sums import can_be_summed, scaled_sum  # not above: few have Triton

        if can_be_summed(parts, steps):
            return scaled_sum(parts, steps, bias)
    total = parts[0] * steps[0]
    for part, step in zip(parts[1:], steps[1:], strict=True):
        total += part * step
    return total if bias is None else total.add_(bias)
