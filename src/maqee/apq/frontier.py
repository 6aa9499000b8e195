"""One trace, many policies: what accuracy costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from maqee.apq.choose import choose_thresholds
from maqee.apq.figures import policy_figures
from maqee.apq.objective import outer_problem
from maqee.apq.options import SearchOptions
from maqee.apq.records import Figures, Scales
from maqee.apq.thresholds import CANDIDATES
from maqee.apq.trace import Trace
from maqee.policy import NEVER


class Point(NamedTuple):
    """A policy on the frontier.

    Attributes:
        setting: what was varied to get it: lambda_outer, or the offset.
        thresholds: of the policy.
        figures: what it does on the trace's samples.
    """

    setting: float
    thresholds: tuple[float, ...]
    figures: Figures


def lambda_frontier(
    trace: Trace, lambdas: Sequence[float], scales: Scales, options: SearchOptions, exact: bool = False
) -> list[Point]:
    """The best policy at every price of cost, by ascending cost; each search starts where its neighbour ended."""
    points, start = [], (options.start,) * trace.exits
    for price in sorted(lambdas):
        problem = outer_problem(trace, scales, replace(options, lambda_outer=price))
        start = choose_thresholds(problem, start, CANDIDATES[options.candidates], exact).thresholds
        points.append(Point(price, start, policy_figures(trace, start)))
    return sorted(points, key=lambda point: (point.figures.cost, -point.setting))


def offset_sweep(trace: Trace, thresholds: Sequence[float]) -> list[Point]:
    """All thresholds moved together, by -1.00 to 1.00: the paper's way from one policy to others.

    Below 0 a threshold stays at 0; above 1 its exit is closed; an exit that was closed stays closed.
    """
    points = []
    for step in range(-100, 101):
        moved = moved_thresholds(thresholds, step / 100)
        points.append(Point(step / 100, moved, policy_figures(trace, moved)))
    return points


def controlled_performance(trace: Trace, thresholds: Sequence[float], target: float) -> Point | None:
    """The cheapest point of the offset sweep with a metric of at least `target`; None where there is none (N/A)."""
    enough = [point for point in offset_sweep(trace, thresholds) if point.figures.metric >= target - 1e-12]
    return min(enough, key=lambda point: (point.figures.cost, -point.figures.metric), default=None)


def moved_thresholds(thresholds: Sequence[float], offset: float) -> tuple[float, ...]:
    """Thresholds moved together.

    Example:
        >>> moved_thresholds((0.8, 0.05, 2.0), -0.1)
        (0.7, 0.0, 2.0)
        >>> moved_thresholds((0.8, 0.95), 0.1)
        (0.9, 2.0)
    """
    moved = (round(value + offset, 10) for value in thresholds)
    return tuple(
        NEVER if value >= NEVER or there > 1 else max(there, 0.0)
        for value, there in zip(thresholds, moved, strict=True)
    )
