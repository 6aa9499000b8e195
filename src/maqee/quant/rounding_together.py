"""ERQ's second step for many layers at once, for accelerators.

There the number of steps is what costs, not what each of them does. All layers of a shape are rounded together, at all
widths of their inputs and weights, each by its own statistics. Every one gets what `round_and_compensate` gives it
alone: numbers are stacked, and products of matrices, whose last digit may depend on their shape, are made one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.quant.grids import UniformGrid
from maqee.quant.refinement import MAX_FLIPS
from maqee.quant.regression import Half

LOOK_EVERY = 8  # rounds of flips; a look at which rows are done makes the host wait


class Rounding(NamedTuple):
    """Weights of one layer that are to be rounded, for one width of its input.

    Attributes:
        steps: which columns in which order, and what makes up for them.
        weight: (out, in).
        bias: (out,).
        grids: one for each width of the weights; scales are (out, 1) or (out, in).
    """

    steps: Iterator[Half]
    weight: Tensor
    bias: Tensor
    grids: Sequence[UniformGrid]


class _Grids(NamedTuple):
    """Grids of a stack: scale and zero are (parts, out, 1) or (parts, out, n), top is (parts, 1, 1)."""

    scale: Tensor
    zero: Tensor
    top: Tensor

    def columns(self, some: slice) -> _Grids:
        if self.scale.shape[-1] == 1:
            return self
        return _Grids(self.scale[..., some], self.zero[..., some], self.top)

    def codes(self, steps: Tensor) -> Tensor:
        """Whole numbers of steps to codes."""
        return torch.minimum((steps + self.zero).clamp_(min=0), self.top)

    def errors(self, codes: Tensor, weight: Tensor) -> Tensor:
        return ((codes - self.zero) * self.scale).sub_(weight)


def round_together(roundings: Sequence[Rounding]) -> list[list[tuple[Tensor, Tensor]]]:
    """For weights of one shape: on each grid of each, codes (out, in) and bias (out,)."""
    owners = [index for index, rounding in enumerate(roundings) for _ in rounding.grids]
    grids = _stacked([grid for rounding in roundings for grid in rounding.grids], roundings[0].weight)
    both = [torch.cat([rounding.weight, rounding.bias[:, None]], dim=1) for rounding in roundings]
    works = torch.stack([both[owner] for owner in owners])  # (parts, out, in + 1)
    codes = torch.empty_like(works[..., :-1])
    for halves in zip(*(rounding.steps for rounding in roundings), strict=True):
        now, later = halves[0].now, halves[0].later
        old, part = works[..., now].contiguous(), grids.columns(now)
        if halves[0].moment is None:
            chosen = part.codes(torch.round(old / part.scale))
        else:
            moments = torch.stack([half.moment for half in halves if half.moment is not None])
            chosen = refine_together(old, part, moments, owners)
        codes[..., now] = chosen
        error = part.errors(chosen, old).double()
        change = error.new_empty(*error.shape[:2], later.stop - later.start)
        for index, owner in enumerate(owners):
            torch.mm(error[index], halves[owner].repair.t(), out=change[index])
        works[..., later] -= change.to(works.dtype)
    found = zip(codes, works[..., -1], strict=True)
    return [[next(found) for _ in rounding.grids] for rounding in roundings]


def refine_together(weights: Tensor, grids: _Grids, moments: Tensor, owners: Sequence[int]) -> Tensor:
    """`refine_rounding` for a stack of weights (parts, out, n); part i goes by moments[owners[i]], (n, n)."""
    steps = weights / grids.scale
    below, above = grids.codes(torch.floor(steps)), grids.codes(torch.ceil(steps))
    low, high = grids.errors(below, weights), grids.errors(above, weights)
    error = grids.errors(grids.codes(torch.round(steps)), weights)
    slope = torch.empty_like(error)
    for index, owner in enumerate(owners):
        torch.mm(error[index], moments[owner], out=slope[index])
    table = torch.tensor(owners, device=weights.device).repeat_interleave(weights.shape[1])  # of every row
    _flip(error.flatten(0, 1), slope.mul_(2).flatten(0, 1), low.flatten(0, 1), high.flatten(0, 1), moments, table)
    return torch.where(error == low, below, above)


def _flip(error: Tensor, slope: Tensor, low: Tensor, high: Tensor, moments: Tensor, table: Tensor) -> None:
    """Change errors (rows, n), each one of `low` or `high`, until no row gets better; row i by moments[table[i]].

    Rows that are done would not change again; they stay among the others until a look finds many of them.
    """
    width = moments.shape[-1]
    columns, diagonals = moments.flatten(0, 1), moments.diagonal(dim1=1, dim2=2).flatten()  # by table and entry
    first, active = table * width, torch.arange(len(error), device=error.device)
    sign = error.sign()
    countdown = torch.arange(width, 0, -1, dtype=slope.dtype, device=slope.device)
    for number in range(1, MAX_FLIPS + 1):
        score = slope * sign  # |g| where e and g agree, else not positive
        steepest = score.amax(dim=1, keepdim=True)
        entry = (width - (score == steepest).mul(countdown).amax(dim=1)).long()  # the first of them
        old, pull = error[active, entry], slope.gather(1, entry[:, None])[:, 0]
        down, up, target = low[active, entry], high[active, entry], old - pull
        new = torch.where((target - down).abs() < (target - up).abs(), down, up)
        step, place = new - old, first + entry
        change = step * pull + step.square() * diagonals[place]
        better = (steepest[:, 0] > 0) & (step != 0) & (change <= 0)
        step, new = torch.where(better, step, 0.0), torch.where(better, new, old)
        error[active, entry] = new
        sign.scatter_(1, entry[:, None], new.sign()[:, None])
        slope.addcmul_(columns[place], step[:, None], value=2)
        if number % LOOK_EVERY == 0:
            going_on = better.nonzero()[:, 0]
            if not len(going_on):
                return
            if len(going_on) < 0.75 * len(active):
                active, first = active[going_on], first[going_on]
                slope, sign = slope[going_on], sign[going_on]


def _stacked(grids: Sequence[UniformGrid], weight: Tensor) -> _Grids:
    shape = weight.shape if any(grid.scale.shape[1] > 1 for grid in grids) else (len(weight), 1)
    top = torch.tensor([float(grid.top) for grid in grids], dtype=weight.dtype, device=weight.device)
    scale, zero = (torch.stack([getattr(grid, name).expand(shape) for grid in grids]) for name in ("scale", "zero"))
    return _Grids(scale, zero, top[:, None, None])
