"""Good thresholds for any problem: several starts, and prices in place of a limit.

Coordinate search ends in a local optimum, and under a limit it ends early: the first exit spends all there is, and no
single threshold can then move. Both cost little to mend. Starts that differ in kind are tried, and a limit is first
turned into a price on what is spent, which leaves every exit its part; a last search mends what the price misses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maqee.apq.budget import Budget
from maqee.apq.exact import exact_search
from maqee.apq.objective import ExitProblem, problem_within
from maqee.apq.options import SearchOptions
from maqee.apq.records import Found, Scales, better
from maqee.apq.thresholds import (
    CANDIDATES,
    Candidates,
    coordinate_search,
    evaluated,
    quantile_candidates,
    shared_candidates,
)
from maqee.apq.trace import Trace
from maqee.policy import NEVER

_PRICES = tuple(float(price) for price in np.geomspace(1e-3, 1e3, 13))
_HALVINGS = 10


def choose_thresholds(
    problem: ExitProblem, start: Sequence[float], candidates: Candidates = quantile_candidates, exact: bool = False
) -> Found:
    """The best policy found from `start` and from other starts; with `exact`, the best of all candidates."""
    best = evaluated(problem, start)
    for other in _starts(problem, start, candidates):
        found = coordinate_search(problem, other, candidates)
        best = found if better(found, best) else best
    return exact_search(problem, best.thresholds, candidates) if exact else best


def choose_policy(
    trace: Trace,
    budget: Budget,
    scales: Scales,
    options: SearchOptions,
    start: Sequence[float] | None = None,
    exact: bool = False,
) -> Found:
    """The best policy at a trace's bits within a budget, from `start` or, when left out, the options' own."""
    problem = problem_within(budget, trace, scales, options)
    first = (options.start,) * trace.exits if start is None else start
    return choose_thresholds(problem, first, CANDIDATES[options.candidates], exact)


def shared_threshold(problem: ExitProblem, candidates: Candidates = quantile_candidates) -> Found:
    """The best policy that has one threshold for all exits."""
    best = evaluated(problem, (NEVER,) * problem.exits)
    for value in shared_candidates(problem, candidates)[:-1]:
        found = evaluated(problem, (value,) * problem.exits)
        best = found if better(found, best) else best
    return best


def _starts(problem: ExitProblem, start: Sequence[float], candidates: Candidates) -> list[tuple[float, ...]]:
    closed = (NEVER,) * problem.exits
    starts = [tuple(start), closed, shared_threshold(problem, candidates).thresholds]
    if problem.limit is not None:
        starts += _priced(problem, starts, candidates)
    # Everybody at the same depth: far from each other, and BSR, which is nothing there, makes each a trap.
    starts += [(*closed[:index], *(0.0,) * (problem.exits - index)) for index in range(problem.exits)]
    return list(dict.fromkeys(starts))


def _priced(
    problem: ExitProblem, starts: Sequence[tuple[float, ...]], candidates: Candidates
) -> list[tuple[float, ...]]:
    """Policies that are best at some price of what is spent: the three best ones within the limit.

    Around the price at which the limit is just kept, prices are halved in: that is where good policies lie.
    """
    assert problem.limit is not None
    spend = problem.limit.spend
    scale = float(np.ptp(problem.value)) / max(float(np.ptp(spend)), 1e-12) or 1.0
    found: list[Found] = []

    def at(price: float, start: Sequence[float]) -> Found:
        priced = problem.priced(price * scale)
        found.append(evaluated(problem, coordinate_search(priced, start, candidates).thresholds))
        return found[-1]

    for start in starts:
        low, high, policy = _PRICES[0], _PRICES[-1], start
        for price in _PRICES:
            result = at(price, policy)
            policy = result.thresholds
            low, high = (price, high) if result.excess > 0 else (low, min(high, price))
        for _ in range(_HALVINGS):
            middle = (low * high) ** 0.5
            result = at(middle, policy)
            low, high = (middle, high) if result.excess > 0 else (low, middle)
            policy = result.thresholds
    found.sort(key=lambda policy: (policy.excess, policy.objective))
    return list(dict.fromkeys(policy.thresholds for policy in found))[:3]
