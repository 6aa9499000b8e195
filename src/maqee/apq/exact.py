"""The best policy of all among the exits' candidates: every combination of thresholds is accounted for.

Binned by the candidates, a sample is a point of small integers: at each exit, how many candidates it reaches. Who
survives thresholds t_1..t_k is then a box, and sums over boxes are cumulative sums of histograms. For the last three
exits all 102^3 combinations come out of one histogram at once; thresholds of earlier exits are walked through, and
skipped where even a policy that knew the best exit of every sample could not beat the best one found so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maqee.apq.objective import ExitProblem
from maqee.apq.records import Found, better
from maqee.apq.thresholds import Candidates, coordinate_search, evaluated, every_candidate, quantile_candidates
from maqee.errors import MaqeeError

Floats = NDArray[np.float64]
_DENSE = 3  # exits whose thresholds are enumerated as arrays
MOST_EXITS = 5


@dataclass(frozen=True, eq=False)
class _Binned:
    """The problem on the candidates. Thresholds are places among them; all sums are over samples, not means.

    Attributes:
        candidates: E lists of thresholds (c_e,), ascending, the last of each never.
        passes: (n, E) how many candidates a sample reaches: it leaves at threshold t if t < passes.
        gain: (n, E, Q) what leaving at an exit adds compared with going on to full depth, for Q quantities: the
            objective, and what is spent of the limit.
        window: (n, E, 2) the thresholds [from, to) for which a reaching sample counts for BSR.
        window_weight: (E,) what it then adds.
        alone: E times (c_e,) what a threshold adds to the objective by itself: BSR where all samples count.
        base: (Q,) what everybody at full depth comes to, all exits being open.
        heads: (E, Q) what a sample saves that reaches a closed exit, for which the last threshold stands.
    """

    candidates: list[Floats]
    passes: NDArray[np.intp]
    gain: Floats
    window: NDArray[np.intp]
    window_weight: Floats
    alone: list[Floats]
    base: Floats
    heads: Floats


def exact_search(
    problem: ExitProblem, start: Sequence[float] | None = None, candidates: Candidates = quantile_candidates
) -> Found:
    """The optimum over all combinations of candidates, and one of the best policies.

    Four exits take a few seconds with ten thousand samples; five can take minutes. `start` is a first guess; the
    better it is, the more is skipped. Every value that makes a difference would be too many to combine: where these
    are the candidates, quantiles are combined, from the best policy that a search one by one finds among all values.
    """
    check_exits(problem.exits)
    best = coordinate_search(problem, start if start is not None else (0.8,) * problem.exits, candidates)
    binned = _bin(problem, quantile_candidates if candidates is every_candidate else candidates, best.thresholds)
    walk = _Walk(problem, binned, best)
    walk.descend((), np.arange(problem.samples), binned.base)
    return walk.best


def check_exits(exits: int) -> None:
    """Complain if there are too many exits for an exact search."""
    if exits > MOST_EXITS:
        raise MaqeeError(
            f"The exact search goes up to {MOST_EXITS} exits, the model has {exits}: use the coordinate search."
        )


class _Walk:
    """Goes through the thresholds of all but the last three exits and keeps the best policy."""

    def __init__(self, problem: ExitProblem, binned: _Binned, best: Found) -> None:
        self.problem, self.binned, self.best = problem, binned, best
        self.loose = problem.exits - _DENSE  # exits that are walked through

    def descend(self, chosen: tuple[int, ...], alive: NDArray[np.intp], total: Floats) -> None:
        """Complete a policy whose first thresholds are `chosen`; `alive` samples pass them all."""
        index = len(chosen)
        if index >= self.loose:
            self._finish(chosen, alive, total)
            return
        table = _table(self.binned, alive, index, index)  # (Q, candidates)
        for t in range(self.binned.candidates[index].size):
            now = total + table[:, t]
            left = alive[self.binned.passes[alive, index] <= t]
            if self._hopeful(index + 1, left, now):
                self.descend((*chosen, t), left, now)

    def _hopeful(self, index: int, alive: NDArray[np.intp], total: Floats) -> bool:
        """Whether the best exit of every sample, freely chosen and the only open one, would beat the best so far."""
        saves = np.cumsum(np.pad(self.binned.heads[index:], ((1, 0), (0, 0))), axis=0)  # (exits left + 1, Q)
        gain = (self.binned.gain[alive, index:] - saves[:-1]).min(axis=1, initial=np.inf)  # (alive, Q)
        bound = total + np.minimum(gain, -saves[-1]).sum(axis=0)
        bound[0] += sum(float(alone.min()) for alone in self.binned.alone[index:])
        bound /= self.problem.samples
        excess = 0.0 if self.problem.limit is None else float(self.problem.limit.excess(bound[1]))
        return (excess, bound[0]) < (self.best.excess, self.best.objective)

    def _finish(self, chosen: tuple[int, ...], alive: NDArray[np.intp], total: Floats) -> None:
        exits = range(len(chosen), self.problem.exits)
        # One axis for each exit, quantities first; tables of earlier exits lack the later axes.
        tables = [_table(self.binned, alive, len(chosen), index) for index in exits]
        tables = [table.reshape(*table.shape, *([1] * (len(exits) + 1 - table.ndim))) for table in tables]
        sums = tables.pop() if tables else np.zeros_like(total)
        sums += sum(tables, total.reshape(-1, *([1] * len(exits))))
        score = sums[0]
        if self.problem.limit is not None:
            most = max(self.problem.limit.allowance * self.problem.samples, float(sums[1].min()))
            score = np.where(sums[1] <= most, score, np.inf)
        place = np.unravel_index(int(score.argmin()), score.shape)
        places = (*chosen, *(int(axis) for axis in place))
        trial = evaluated(self.problem, [values[t] for values, t in zip(self.binned.candidates, places, strict=True)])
        if better(trial, self.best):
            self.best = trial


def _table(binned: _Binned, alive: NDArray[np.intp], first: int, index: int) -> Floats:
    """What exit `index` adds for all thresholds of exits first..index: (Q, c_first, .., c_index).

    A sample reaches the exit if every earlier threshold is at least its `passes` there, and adds its gain for
    thresholds below its `passes` here. Both are steps, so a histogram of their edges is summed up along each axis.
    """
    shape = tuple(values.size for values in binned.candidates[first : index + 1])
    origin = np.zeros(alive.size, dtype=np.intp)
    for earlier in range(first, index):
        origin = (origin + binned.passes[alive, earlier]) * shape[earlier + 1 - first]
    here, size = origin + binned.passes[alive, index], math.prod(shape)
    table = np.empty((binned.gain.shape[2], size))
    for quantity in range(table.shape[0]):
        gain = binned.gain[alive, index, quantity]
        table[quantity] = np.bincount(np.append(origin, here), np.append(gain, -gain), minlength=size)
    if binned.window_weight[index]:  # the last threshold, never, is near nobody: edges stay on the axis
        edges = np.append(*(origin + binned.window[alive, index, side] for side in (0, 1)))
        table[0] += np.bincount(edges, np.repeat([1, -1], alive.size) * binned.window_weight[index], minlength=size)
    if binned.heads[index].any():  # whoever reaches the exit saves its head at the last threshold
        reached = np.bincount(origin // shape[-1], minlength=size // shape[-1])
        table.reshape(len(table), -1, shape[-1])[:, :, -1] -= np.outer(binned.heads[index], reached)
    table = table.reshape(-1, *shape)
    _accumulate(table)
    table[0] += binned.alone[index]
    return table


def _accumulate(table: Floats) -> None:
    """Cumulative sums along all axes but the first, in place; slice by slice is faster than np.cumsum."""
    for axis in range(1, table.ndim - 1):
        along = np.moveaxis(table, axis, 0)
        for place in range(1, along.shape[0]):
            along[place] += along[place - 1]
    np.cumsum(table, axis=-1, out=table)


def _bin(problem: ExitProblem, candidates: Candidates, start: Sequence[float]) -> _Binned:
    samples, exits = problem.confidence.shape
    kinds = [problem.value] if problem.limit is None else [problem.value, problem.limit.spend]
    values = np.stack(kinds, axis=2)  # (n, E + 1, Q)
    heads = [problem.heads] if problem.limit is None else [problem.heads, problem.limit.heads]
    lists = [candidates(problem, index, start[index]) for index in range(exits)]
    passes = np.zeros((samples, exits), dtype=np.intp)
    window = np.zeros((samples, exits, 2), dtype=np.intp)
    alone = [np.zeros(looked_at.size) for looked_at in lists]
    for index, looked_at in enumerate(lists):
        passes[:, index] = np.searchsorted(looked_at.astype(np.float32), problem.confidence[:, index], side="right")
        rho, tau, size = problem.boundary[:, index], problem.tau[index], looked_at.size
        window[:, index, 0] = np.searchsorted(looked_at + tau, rho, side="left")
        window[:, index, 1] = np.searchsorted(looked_at - tau, rho, side="right")
        if not problem.reaching:
            edges = (np.bincount(window[:, index, side], minlength=size + 1)[:size] for side in (0, 1))
            alone[index] = problem.boundary_weight[index] * np.cumsum(np.subtract(*edges))
    base = values[:, -1].sum(axis=0)
    base[0] += problem.constant * samples
    return _Binned(
        candidates=lists,
        passes=passes,
        gain=values[:, :-1] - values[:, -1:],
        window=window,
        window_weight=problem.boundary_weight * problem.reaching,
        alone=alone,
        base=base,
        heads=np.stack([np.broadcast_to(saved, exits) for saved in heads], axis=1),
    )
