"""Ridge regression against rounding errors: the arithmetic of ERQ, on matrices.

Everything is expressed by second moments of a layer's input, so the work does not grow with the number of images.
Rows are samples, columns the layer's inputs; a column of ones for the bias is appended as the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maqee.quant.grids import UniformGrid

MAX_FLIPS = 100


@dataclass(frozen=True)
class Moments:
    """Sums over the rows A of rounded inputs and X of float ones, ones appended to A.

    Attributes:
        gram: A^T A, (in + 1, in + 1).
        error: A^T (X - A) without the column of ones in the right factor, (in + 1, in): how the rounding error goes
            along with the input.
        rows: how many rows were added up.
    """

    gram: Tensor
    error: Tensor
    rows: int

    @classmethod
    def of(cls, x: Tensor, rounded: Tensor) -> Moments:
        """From the float and rounded rows (rows, in) of one layer."""
        columns = torch.cat([rounded, rounded.new_ones(len(rounded), 1)], dim=1)
        return cls(columns.t() @ columns, columns.t() @ (x - rounded), len(rounded))

    def second_moment(self, columns: slice) -> Tensor:
        """Mean times mean plus covariance (unbiased) of some columns, the matrix of the rounding's expected cost."""
        gram, mean = self.gram[columns, columns], self.gram[-1, columns] / self.rows
        outer = mean[:, None] * mean[None, :]
        return outer + (gram - self.rows * outer) / max(self.rows - 1, 1)


def solve_ridge(gram: Tensor, lam: float, right: Tensor) -> Tensor:
    """(gram + lam I)^-1 right, in double precision, which also hides in what order threads add up."""
    damped = gram.to(torch.float64, copy=True)
    damped.diagonal().add_(lam)
    return torch.cholesky_solve(right, torch.linalg.cholesky(damped))


def ridge_update(moments: Moments, weight: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Aqer: what to add to float weights (out, in) and bias (out,) so that rounded inputs give the float outputs.

    The output that is missing is Y = (X - A) W^T, so Delta = (A^T A + lam I)^-1 A^T (X - A) W^T.
    """
    delta = solve_ridge(moments.gram, lam, moments.error.double() @ weight.t().double())  # (in + 1, out)
    return delta[:-1].t().to(weight.dtype), delta[-1].to(weight.dtype)


def round_and_compensate(
    moments: Moments, weight: Tensor, bias: Tensor, grid: UniformGrid, lam: float, refine: bool = True
) -> tuple[Tensor, Tensor]:
    """Wqer: codes (out, in) and the bias (out,) that makes up for the last of the error.

    Half of the columns that are still float are rounded at a time, the others change to cancel what that did to the
    output: w2 -= (X2^T X2 + lam I)^-1 X2^T X1 e1.
    """
    work = torch.cat([weight, bias[:, None]], dim=1).clone()  # (out, in + 1)
    codes = torch.zeros_like(weight)
    first, end = 0, work.shape[1]
    while end - first > 1:
        middle = first + (end - first) // 2
        now, later = slice(first, middle), slice(middle, end)
        part = columns_of(grid, now)
        chosen = part.codes(work[:, now])
        if refine:
            chosen = refine_rounding(work[:, now], part, moments.second_moment(now))
        codes[:, now] = chosen
        error = part.values(chosen) - work[:, now]
        excess = moments.gram[later, now].double() @ error.t().double()
        work[:, later] -= solve_ridge(moments.gram[later, later], lam, excess).t().to(work.dtype)
        first = middle
    return codes, work[:, -1]


def refine_rounding(weight: Tensor, grid: UniformGrid, moment: Tensor) -> Tensor:
    """Flip roundings while the expected squared error e^T M e of the output falls, each row on its own.

    From the nearest rounding, at most a hundred times: with g = 2 M e, look at the entry with the largest |g| among
    those where e and g agree in sign; move it to whichever of its two neighbours is nearer to e - g; a row is done when
    that changes nothing or costs more. One flip changes g by a column of M, so nothing is multiplied anew.

    Args:
        weight: (out, n).
        grid: of these columns.
        moment: M, (n, n).

    Returns:
        Codes (out, n).
    """
    codes = grid.codes(weight)
    below = (torch.floor(weight / grid.scale) + grid.zero).clamp(0, grid.top)
    above = (torch.ceil(weight / grid.scale) + grid.zero).clamp(0, grid.top)
    low, high = grid.values(below) - weight, grid.values(above) - weight
    error = grid.values(codes) - weight
    slope = 2 * error @ moment
    active = torch.arange(len(weight), device=weight.device)
    for _ in range(MAX_FLIPS):
        agree = error * slope > 0
        steepest, entry = torch.where(agree, slope.abs(), -1.0).max(dim=1)
        old = _take(error, entry)
        target = old - _take(slope, entry)
        down, up = low[active, entry], high[active, entry]
        new = torch.where((target - down).abs() < (target - up).abs(), down, up)
        step = new - old
        change = step * _take(slope, entry) + step.square() * moment.diagonal()[entry]
        better = (steepest > 0) & (step != 0) & (change <= 0)
        if not bool(better.any()):
            break
        active, entry, step, new = active[better], entry[better], step[better], new[better]
        error, slope = error[better], slope[better]
        error.scatter_(1, entry[:, None], new[:, None])
        slope += 2 * step[:, None] * moment[entry]
        codes[active, entry] = torch.where(new == low[active, entry], below[active, entry], above[active, entry])
    return codes


def columns_of(grid: UniformGrid, columns: slice) -> UniformGrid:
    """The grid of some columns; scales are (out, 1) or (out, in)."""
    if grid.scale.shape[1] == 1:
        return grid
    return UniformGrid(grid.bits, grid.scale[:, columns], grid.zero[:, columns])


def _take(table: Tensor, entry: Tensor) -> Tensor:
    """One entry of each row."""
    return table.gather(1, entry[:, None])[:, 0]
