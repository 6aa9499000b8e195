"""How long threshold searches take: the figures behind "seconds, without the model"."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from maqee.apq.choose import choose_thresholds
from maqee.apq.exact import exact_search
from maqee.apq.objective import ExitProblem
from maqee.apq.thresholds import coordinate_search, evaluated, every_candidate, grid_candidates, sweep
from maqee.bench.result import BenchResult
from maqee.environment import describe_environment
from maqee.errors import MaqeeError


@dataclass(frozen=True, kw_only=True)
class ThresholdTiming(BenchResult):
    """Searches for thresholds on arrays: seconds, and the objective that each reaches.

    Attributes:
        samples: rows of the arrays.
        exits: columns of the arrays.
        grid_sweep_seconds: one sweep over all exits on the grid of hundredths.
        every_value_sweep_seconds: one sweep over every value that makes a difference.
        coordinate_search_seconds: a whole coordinate search.
        several_starts_seconds: the same from several starts.
        exact_seconds: the best of all on the grid.
        coordinate_objective: what coordinate search finds.
        several_starts_objective: what several starts find.
        exact_objective: the optimum.
    """

    samples: int
    exits: int
    grid_sweep_seconds: float
    every_value_sweep_seconds: float
    coordinate_search_seconds: float
    several_starts_seconds: float
    exact_seconds: float
    coordinate_objective: float
    several_starts_objective: float
    exact_objective: float


def search_speed(samples: int = 10_000, exits: int = 4, seed: int = 0, repeats: int = 5) -> ThresholdTiming:
    """Seconds of one coordinate sweep, of whole searches and of the exact one on random samples, and what they find.

    Sweeps are timed with the samples sorted already, as they are from the second sweep on.
    """
    for name, count in (("samples", samples), ("exits", exits), ("repeats", repeats)):
        if count < 1:
            raise MaqeeError(f"{name}: {count} must be at least 1.")
    problem = random_problem(samples, exits, seed)
    start = evaluated(problem, (0.8,) * exits)
    found, chosen = coordinate_search(problem, start.thresholds), choose_thresholds(problem, start.thresholds)
    before = time.perf_counter()
    best = exact_search(problem)
    exact_seconds = time.perf_counter() - before
    return ThresholdTiming(
        samples=samples,
        exits=exits,
        grid_sweep_seconds=_median(lambda: sweep(problem, start, grid_candidates), repeats),
        every_value_sweep_seconds=_median(lambda: sweep(problem, start, every_candidate), repeats),
        coordinate_search_seconds=_median(lambda: coordinate_search(problem, start.thresholds), repeats),
        several_starts_seconds=_median(lambda: choose_thresholds(problem, start.thresholds), repeats),
        exact_seconds=exact_seconds,
        coordinate_objective=found.objective,
        several_starts_objective=chosen.objective,
        exact_objective=best.objective,
        environment=describe_environment(),
    )


def random_problem(samples: int, exits: int, seed: int = 0) -> ExitProblem:
    """Samples of differing ease, exits of growing skill; every exit costs more than the one before."""
    rng = np.random.default_rng(seed)
    ease = 2.5 * rng.normal(size=(samples, 1))
    margin = ease + np.linspace(1.0, 1.8, exits + 1) + 0.6 * rng.normal(size=(samples, exits + 1))
    confidence = 1 / (1 + np.exp(-np.abs(margin)))
    loss = np.log1p(np.exp(-2 * margin))
    return ExitProblem(
        confidence=confidence[:, :-1].astype(np.float32),
        value=0.75 * (loss - loss[:, -1:]) + 0.6 * np.linspace(0.4, 1.0, exits + 1),
        boundary=np.clip(confidence[:, :-1] + 0.03 * rng.normal(size=(samples, exits)), 0, 1),
        tau=np.full(exits, 0.05),
        boundary_weight=np.full(exits, 0.01),
    )


def _median(job: Callable[[], Any], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        before = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - before)
    return statistics.median(seconds)
