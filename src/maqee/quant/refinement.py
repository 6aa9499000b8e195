"""Rounding weights up or down so that their errors cancel in the output: the refinement inside ERQ's second step."""

from __future__ import annotations

import torch
from torch import Tensor

from maqee.quant.grids import UniformGrid

MAX_FLIPS = 100
CPU_BLOCK = 1 << 19  # weights at a time, so that the work stays in the cache


def refine_rounding(weight: Tensor, grid: UniformGrid, moment: Tensor) -> Tensor:
    """Flip roundings while the expected squared error e^T M e of the output falls, each row on its own.

    From the nearest rounding, at most a hundred times: with g = 2 M e, look at the entry with the largest |g| among
    those where e and g agree in sign; move it to whichever of its two neighbours is nearer to e - g; a row is done when
    that changes nothing or costs more. One flip changes g by a column of M, so nothing is multiplied anew.

    A few rows are taken at a time. `maqee.quant.rounding_together` does the same for many layers at once.

    Args:
        weight: (out, n).
        grid: of these columns.
        moment: M, (n, n).

    Returns:
        Codes (out, n).
    """
    height = max(1, CPU_BLOCK // len(moment))
    blocks = [slice(first, first + height) for first in range(0, len(weight), height)]
    return torch.cat([_refined(weight[rows], _rows_of(grid, rows), moment) for rows in blocks])


def _refined(weight: Tensor, grid: UniformGrid, moment: Tensor) -> Tensor:
    """Codes of some rows, flipped together."""
    steps = weight / grid.scale
    below = (torch.floor(steps) + grid.zero).clamp_(0, grid.top)
    above = (torch.ceil(steps) + grid.zero).clamp_(0, grid.top)
    low, high = grid.values(below).sub_(weight), grid.values(above).sub_(weight)
    error = grid(weight).sub_(weight)
    _flip(error, (error @ moment).mul_(2), low, high, moment)
    return torch.where(error == low, below, above)


def _flip(error: Tensor, slope: Tensor, low: Tensor, high: Tensor, moment: Tensor) -> None:
    """Change errors, each one of `low` or `high`, until no row gets better.

    Rows that are done stay in the tables (they would not change again) until they are many.
    """
    width, diagonal = len(moment), moment.diagonal()
    sign = error.sign()
    countdown = torch.arange(width, 0, -1, dtype=slope.dtype, device=slope.device)
    active = torch.arange(len(error), device=error.device)
    score, column = torch.empty_like(slope), torch.empty_like(slope)
    for _ in range(MAX_FLIPS):
        torch.mul(slope, sign, out=score)  # |g| where e and g agree, else not positive
        steepest = score.amax(dim=1, keepdim=True)
        torch.eq(score, steepest, out=column)
        entry = (width - column.mul_(countdown).amax(dim=1)).long()  # the first of them; argmax takes much longer
        old, pull = error[active, entry], slope.gather(1, entry[:, None])[:, 0]
        down, up, target = low[active, entry], high[active, entry], old - pull
        new = torch.where((target - down).abs() < (target - up).abs(), down, up)
        step = new - old
        change = step * pull + step.square() * diagonal[entry]
        better = (steepest[:, 0] > 0) & (step != 0) & (change <= 0)
        count = int(better.sum())
        if not count:
            break
        if count < 0.75 * len(active):
            active, entry, step, new = active[better], entry[better], step[better], new[better]
            slope, sign, score, column = slope[better], sign[better], score[:count], column[:count]
        else:
            step, new = torch.where(better, step, 0.0), torch.where(better, new, old)
        error[active, entry] = new
        sign.scatter_(1, entry[:, None], new.sign()[:, None])
        torch.index_select(moment, 0, entry, out=column)
        slope.addcmul_(column, step[:, None], value=2)


def _rows_of(grid: UniformGrid, rows: slice) -> UniformGrid:
    return UniformGrid(grid.bits, grid.scale[rows], grid.zero[rows])
