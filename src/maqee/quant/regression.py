"""Ridge regression against rounding errors: the arithmetic of ERQ, on matrices.

Everything is expressed by second moments of a layer's rounded input, so the work does not grow with the number of
images. They are factored once for each width of the input; all widths of the weights share the factors.
Rows are samples, columns the layer's inputs; a column of ones for the bias is appended as the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.quant.code_products import code_gram
from maqee.quant.grids import UniformGrid
from maqee.quant.refinement import refine_rounding


@dataclass(frozen=True)
class Moments:
    """Sums over the rows A of rounded inputs, ones appended.

    Attributes:
        gram: A^T A, (in + 1, in + 1), in double precision.
        rows: how many rows were added up.
    """

    gram: Tensor
    rows: int

    @classmethod
    def of(cls, rounded: Tensor) -> Moments:
        """From the rounded rows (rows, in) of one layer."""
        columns = _with_ones(rounded)
        return cls((columns.t() @ columns).double(), len(rounded))

    @classmethod
    def of_codes(cls, codes: Tensor, grid: UniformGrid) -> Moments:
        """From codes (rows, in) on a grid with one scale and one whole zero point: exact sums of whole numbers.

        With C the codes less the middle of the grid and d the middle less the zero point, A = s (C + d).
        """
        rows, width = codes.shape
        middle = 2 ** (grid.bits - 1)
        offset, scale = middle - grid.zero.double(), grid.scale.double()
        centred = codes - middle
        sums = centred.sum(dim=0, dtype=torch.float64) + rows * offset  # of C + d
        gram = torch.empty(width + 1, width + 1, dtype=torch.float64, device=codes.device)
        cross = offset * (sums - rows * offset / 2)
        gram[:-1, :-1] = code_gram(centred).add_(cross[:, None]).add_(cross).mul_(scale.square())
        gram[-1, :-1] = gram[:-1, -1] = sums * scale
        gram[-1, -1] = rows
        return cls(gram, rows)

    def second_moment(self, columns: slice) -> Tensor:
        """Mean times mean plus covariance (unbiased) of some columns, the matrix of the rounding's expected cost."""
        gram, mean = self.gram[columns, columns], self.gram[-1, columns] / self.rows
        outer = mean[:, None] * mean[None, :]
        return outer + (gram - self.rows * outer) / max(self.rows - 1, 1)


def missing_output(x: Tensor, rounded: Tensor, weight: Tensor) -> Tensor:
    """A^T (X - A) W^T, (in + 1, out) double: how the missing output goes along with the rounded input.

    Which two factors are multiplied first is a matter of time only.
    """
    columns = _with_ones(rounded)
    error = x - rounded
    if 2 * len(weight) < weight.shape[1]:
        return (columns.t() @ (error @ weight.t())).double()
    return (columns.t() @ error).double() @ weight.t().double()


class Ridge:
    """A^T A + lam I in factors, in double precision, which also hides in what order threads add up.

    The matrix is factored with its columns in reverse order. Then the factor of any of its lower right parts, the
    columns that are not yet rounded, is a part of the factor of the whole.

    Args:
        gram: A^T A.
        lam: the penalty.
    """

    def __init__(self, gram: Tensor, lam: float) -> None:
        damped = gram.double().flip(0, 1)
        damped.diagonal().add_(lam)
        self.lower = torch.linalg.cholesky(damped)

    def solve(self, right: Tensor) -> Tensor:
        """(A^T A + lam I)^-1 right."""
        return torch.cholesky_solve(right.flip(0), self.lower).flip(0)

    def repair(self, now: slice, later: slice) -> Tensor:
        """(X2^T X2 + lam I)^-1 X2^T X1, (later, now), for neighbouring columns up to the last.

        With L22 the factor of the later columns, X2^T X1 = L22 L12^T, so one triangular solve is left.
        """
        size = later.stop - later.start
        within, across = self.lower[:size, :size], self.lower[size : later.stop - now.start, :size]
        return torch.linalg.solve_triangular(within.t(), across.t(), upper=True).flip(0, 1)


class Half(NamedTuple):
    """One step of rounding half of the columns that are still float.

    Attributes:
        now: the columns to round.
        later: those that make up for it; the bias is the last.
        repair: what they change by for errors in the others, (later, now).
        moment: what errors cost, (now, now); None if they are not refined.
    """

    now: slice
    later: slice
    repair: Tensor
    moment: Tensor | None


def halves(moments: Moments, ridge: Ridge, dtype: torch.dtype, refine: bool = True) -> Iterator[Half]:
    """The steps for one layer at one width of its input."""
    first, end = 0, len(moments.gram)
    while end - first > 1:
        middle = first + (end - first) // 2
        now, later = slice(first, middle), slice(middle, end)
        moment = moments.second_moment(now).to(dtype) if refine else None
        yield Half(now, later, ridge.repair(now, later), moment)
        first = middle


def ridge_update(ridge: Ridge, missing: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Aqer: what to add to float weights (out, in) and bias (out,) so that rounded inputs give the float outputs.

    The output that is missing is Y = (X - A) W^T, so Delta = (A^T A + lam I)^-1 A^T (X - A) W^T.
    """
    delta = ridge.solve(missing)  # (in + 1, out)
    return delta[:-1].t().to(dtype), delta[-1].to(dtype)


def round_and_compensate(
    steps: Iterator[Half], weight: Tensor, bias: Tensor, grids: Sequence[UniformGrid]
) -> list[tuple[Tensor, Tensor]]:
    """Wqer: on each grid, codes (out, in) and the bias (out,) that makes up for the last of the error.

    Half of the columns that are still float are rounded at a time, the others change to cancel what that did to the
    output: w2 -= (X2^T X2 + lam I)^-1 X2^T X1 e1. Each grid gets what it would get alone.
    """
    both = torch.cat([weight, bias[:, None]], dim=1)  # (out, in + 1)
    works = [both.clone() for _ in grids]
    codes = [torch.empty_like(weight) for _ in grids]
    for now, later, repair, moment in steps:
        parts = [columns_of(grid, now) for grid in grids]
        old = [work[:, now] for work in works]
        if moment is None:
            chosen = [part.codes(weights) for part, weights in zip(parts, old, strict=True)]
        else:
            chosen = [refine_rounding(weights, part, moment) for part, weights in zip(parts, old, strict=True)]
        for index, part in enumerate(parts):
            codes[index][:, now] = chosen[index]
            error = part.values(chosen[index]).sub_(old[index])
            works[index][:, later] -= (error.double() @ repair.t()).to(weight.dtype)
    return [(found, work[:, -1]) for found, work in zip(codes, works, strict=True)]


def columns_of(grid: UniformGrid, columns: slice) -> UniformGrid:
    """The grid of some columns; scales are (out, 1) or (out, in)."""
    if grid.scale.shape[1] == 1:
        return grid
    return UniformGrid(grid.bits, grid.scale[:, columns], grid.zero[:, columns])


def _with_ones(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
