"""Choosing thresholds one exit at a time, exactly: with the others fixed, one sort and sums from the end do it.

Threshold phi of an exit decides who leaves there: of the samples that reach it, those with confidence >= phi. Moving
phi up passes them on one by one, so the objective at all values is a running sum over the samples in order of
confidence. No candidate needs a pass of its own. A closed exit passes on all of them, and each saves its head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maqee.apq.candidates import GRID as GRID
from maqee.apq.candidates import QUANTILES, quantile_values
from maqee.apq.cost import closing_saves
from maqee.apq.objective import ExitProblem
from maqee.apq.records import Found, better
from maqee.policy import NEVER, closed_exits, take_exits

Floats = NDArray[np.float64]
Candidates = Callable[[ExitProblem, int, float], Floats]  # problem, exit, its threshold now -> thresholds to look at
_MAX_SWEEPS = 100


class Scan(NamedTuple):
    """Every candidate of one exit, the other thresholds being fixed: (candidates,) each."""

    excess: Floats
    objective: Floats


def grid_candidates(problem: ExitProblem, index: int, now: float) -> Floats:
    """The hundredths from 0 to 1, and never."""
    return np.array(GRID)


def quantile_candidates(problem: ExitProblem, index: int, now: float) -> Floats:
    """At most 100 confidences that were seen at the exit, evenly spread over the samples; 0, and never."""
    return problem.quantiles[index]


def every_candidate(problem: ExitProblem, index: int, now: float) -> Floats:
    """Thresholds among which a best one of all in single precision is found: for n samples at most 3n, and never."""
    return problem.turning_points[index]


def near_candidates(reach: float, among: Candidates = quantile_candidates) -> Candidates:
    """Candidates within `reach` of the threshold now, and never: the warm start after a small change of bits.

    Quantiles are near by rank: 0.1 is ten of the hundred either way, however close together their values lie, and
    confidences that all move a little leave a threshold where it was among them. Other candidates are near by value.
    """

    def candidates(problem: ExitProblem, index: int, now: float) -> Floats:
        values = among(problem, index, now)
        if among is quantile_candidates:
            steps = np.abs(np.arange(values.size) - np.searchsorted(values, now))
            near = steps <= reach * QUANTILES + 1e-9
        else:
            near = np.abs(values - min(now, 1.0)) <= reach + 1e-9
        return values[near | (values == NEVER)]

    return candidates


CANDIDATES: dict[str, Candidates] = {  # as `SearchOptions` names them
    "quantiles": quantile_candidates,
    "grid": grid_candidates,
    "every": every_candidate,
}


def shared_candidates(problem: ExitProblem, among: Candidates = quantile_candidates) -> Floats:
    """Thresholds that all exits may have together: the hundredths, or quantiles of what all exits saw."""
    return np.array(GRID) if among is grid_candidates else quantile_values(problem.confidence)


def scan_exit(problem: ExitProblem, thresholds: Sequence[float], index: int, candidates: Floats) -> Scan:
    """The objective at every candidate threshold of one exit."""
    before = take_exits(problem.confidence[:, :index], thresholds[:index])
    reached = before == index
    rows = np.arange(problem.samples)
    onward = index + 1 + take_exits(problem.confidence[:, index + 1 :], thresholds[index + 1 :])
    others = (*thresholds[:index], 0.0, *thresholds[index + 1 :])  # this exit is open until the end of the scan
    saves = closing_saves(problem.heads, others)
    passed = problem.value[rows, onward] - saves[onward]  # what a sample adds if it passes this exit
    passed = passed + _near_cost(problem, thresholds, range(index + 1, problem.exits), onward, sampled=True)
    elsewhere = np.where(reached, passed, problem.value[rows, before] - saves[before])
    elsewhere = elsewhere + _near_cost(problem, thresholds, range(index), before, sampled=True)
    base = elsewhere.sum() / problem.samples + problem.constant
    base += _near_cost(problem, thresholds, [i for i in range(problem.exits) if i != index], before, sampled=False)

    order = problem.orders[index]
    order = order[reached[order]]
    first = np.searchsorted(problem.confidence[order, index], candidates.astype(np.float32))  # the first that leaves
    objective = base + _from_end(problem.value[order, index] - saves[index] - passed[order])[first] / problem.samples
    closed = closed_exits(candidates) * (order.size / problem.samples)  # share of samples that pass a closed exit
    objective = objective - closed * np.broadcast_to(problem.heads, problem.exits)[index]
    if problem.boundary_weight[index]:
        objective = objective + problem.boundary_weight[index] * _near_share(problem, index, candidates, reached)
    if problem.limit is None:
        return Scan(np.zeros(candidates.size), objective)
    spend, saves = problem.limit.spend, closing_saves(problem.limit.heads, others)
    passed = spend[rows, onward] - saves[onward]
    spent = np.where(reached, passed, spend[rows, before] - saves[before]).sum()
    spent = spent + _from_end(spend[order, index] - saves[index] - passed[order])[first]
    spent = spent / problem.samples - closed * np.broadcast_to(problem.limit.heads, problem.exits)[index]
    return Scan(problem.limit.excess(spent), objective)


def sweep(problem: ExitProblem, found: Found, candidates: Candidates) -> Found:
    """Each exit once, in order."""
    for index in range(problem.exits):
        found = _move_one(problem, found, index, candidates)
    return found


def coordinate_search(
    problem: ExitProblem, start: Sequence[float], candidates: Candidates = quantile_candidates
) -> Found:
    """Sweeps until nothing moves. The objective never rises on the way; the end is a local optimum."""
    found = evaluated(problem, start)
    still = 0  # exits looked at since the last one moved: that one is best as it is
    for _ in range(_MAX_SWEEPS):
        for index in range(problem.exits):
            after = _move_one(problem, found, index, candidates)
            still = still + 1 if after.thresholds == found.thresholds else 1
            found = after
            if still >= problem.exits:
                return found
    return found


def _move_one(problem: ExitProblem, found: Found, index: int, candidates: Candidates) -> Found:
    """The best threshold of one exit. It moves only if the policy, evaluated afresh, is better."""
    values = candidates(problem, index, found.thresholds[index])
    scan = scan_exit(problem, found.thresholds, index, values)
    # Among equals the highest: where the record cannot tell, stay careful.
    best = float(values[values.size - 1 - int(np.lexsort((scan.objective[::-1], scan.excess[::-1]))[0])])
    if best == found.thresholds[index]:
        return found
    trial = evaluated(problem, (*found.thresholds[:index], best, *found.thresholds[index + 1 :]))
    return trial if better(trial, found) else found


def evaluated(problem: ExitProblem, thresholds: Sequence[float]) -> Found:
    """Thresholds with what they achieve."""
    return Found(tuple(float(value) for value in thresholds), *problem.evaluate(thresholds))


def _from_end(values: Floats) -> Floats:
    """Sums of values[k:] for k = 0..n: (n + 1,)."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def _near_share(problem: ExitProblem, index: int, candidates: Floats, reached: NDArray[np.bool_]) -> Floats:
    """BSR of one exit at every candidate."""
    order = problem.boundary_orders[index]
    if problem.reaching:
        order = order[reached[order]]
    rho, tau = problem.boundary[order, index], problem.tau[index]
    counts = np.searchsorted(rho, candidates + tau, side="right") - np.searchsorted(rho, candidates - tau, side="left")
    return counts / problem.samples


def _near_cost(
    problem: ExitProblem,
    thresholds: Sequence[float],
    exits: Sequence[int],
    taken: NDArray[np.intp],
    *,
    sampled: bool,
) -> Floats:
    """What BSR of some exits costs: each sample's part (n,) where only reaching samples count, else one number."""
    total = np.zeros(problem.samples) if sampled else np.zeros(())
    if problem.reaching != sampled:
        return total
    for index in exits:
        if problem.boundary_weight[index]:
            rho, tau = problem.boundary[:, index], problem.tau[index]
            near = (rho >= thresholds[index] - tau) & (rho <= thresholds[index] + tau)
            if sampled:
                total = total + problem.boundary_weight[index] * (near & (taken >= index))
            else:
                total = total + problem.boundary_weight[index] * near.sum() / problem.samples
    return total
