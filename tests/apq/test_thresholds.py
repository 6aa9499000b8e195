"""Threshold search: against evaluation one by one, and downhill only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maqee.apq.objective import ExitProblem, outer_problem
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales, better
from maqee.apq.thresholds import (
    GRID,
    Candidates,
    coordinate_search,
    evaluated,
    every_candidate,
    grid_candidates,
    near_candidates,
    quantile_candidates,
    scan_exit,
    shared_candidates,
    sweep,
)
from maqee.policy import NEVER
from tests.apq.makers import make_trace, problems


@given(problems(), st.tuples(*(st.sampled_from((value, NEVER)) for value in (0.4, 0.7, 0.55))))
@settings(max_examples=60)
def test_a_scan_is_what_evaluation_says(problem: ExitProblem, thresholds: tuple[float, ...]) -> None:
    """Whichever of the other exits are closed."""
    for index in range(3):
        candidates = np.union1d(every_candidate(problem, index, 0.5), np.array(GRID[::5]))
        scan = scan_exit(problem, thresholds, index, candidates)
        for place, value in enumerate(candidates):
            moved = [*thresholds[:index], float(value), *thresholds[index + 1 :]]
            assert (scan.excess[place], scan.objective[place]) == pytest.approx(problem.evaluate(moved), abs=1e-9)


@given(problems(exits=2, most=8, step=40))
@settings(max_examples=60)
def test_every_candidate_misses_nothing(problem: ExitProblem) -> None:
    """No number on a much finer grid beats the candidates; in single precision, as confidences are compared."""
    if problem.limit is not None:
        problem = replace(problem, limit=None)
    thresholds = (0.5, 0.5)
    for index in range(2):
        best = scan_exit(problem, thresholds, index, every_candidate(problem, index, 0.5)).objective.min()
        fine = (np.arange(4001) / 4000).astype(np.float32).astype(np.float64)
        assert best <= scan_exit(problem, thresholds, index, fine).objective.min() + 1e-12


@given(problems(), st.sampled_from([grid_candidates, quantile_candidates, every_candidate, near_candidates(0.1)]))
@settings(max_examples=60)
def test_the_objective_never_rises(problem: ExitProblem, candidates: Candidates) -> None:
    found = evaluated(problem, (0.8, 0.8, 0.8))
    for _ in range(5):
        after = sweep(problem, found, candidates)
        assert after == found or better(after, found)
        assert (after.excess, after.objective) == problem.evaluate(after.thresholds)
        found = after


@given(problems(), st.sampled_from([grid_candidates, quantile_candidates, every_candidate]))
@settings(max_examples=40)
def test_the_end_is_a_local_optimum(problem: ExitProblem, candidates: Candidates) -> None:
    found = coordinate_search(problem, (0.8,) * 3, candidates)
    for index in range(3):
        for value in candidates(problem, index, 0.8):
            moved = (*found.thresholds[:index], float(value), *found.thresholds[index + 1 :])
            assert not better(evaluated(problem, moved), found)


def test_near_candidates() -> None:
    problem = outer_problem(make_trace(), Scales(tau=(0.05,) * 3), SearchOptions())
    near = near_candidates(0.02, grid_candidates)
    assert near(problem, 0, 0.5).tolist() == [0.48, 0.49, 0.5, 0.51, 0.52, NEVER]
    assert near(problem, 0, NEVER).tolist() == [0.98, 0.99, 1.0, NEVER]


def test_near_among_quantiles() -> None:
    """By rank: two of a hundred either way, wherever confidences lie; a threshold between two counts as the upper."""
    confidence = np.random.default_rng(0).uniform(0.88, 0.96, size=(1000, 4))
    problem = outer_problem(make_trace(1000, confidence=confidence), Scales(tau=(0.05,) * 3), SearchOptions())
    values, near = problem.quantiles[0], near_candidates(0.02)
    assert near(problem, 0, float(values[50])).tolist() == [*values[48:53], NEVER]
    assert near(problem, 0, float(values[49] + values[50]) / 2).tolist() == [*values[48:53], NEVER]
    assert near(problem, 0, NEVER).tolist() == [*values[-3:-1], NEVER]
    assert near(problem, 0, 0.0).tolist() == [*values[:3], NEVER]


def test_what_all_exits_may_share() -> None:
    problem = outer_problem(make_trace(50), Scales(tau=(0.05,) * 3), SearchOptions())
    assert shared_candidates(problem, grid_candidates).tolist() == list(GRID)
    pooled = shared_candidates(problem)
    assert set(pooled[1:-1]) <= set(problem.confidence.astype(np.float64).ravel())
    for index in range(3):
        assert set(pooled) & set(problem.quantiles[index][1:-1])
