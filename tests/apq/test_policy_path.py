"""A quick choice under a limit: within it, and nearly as good as a thorough one."""

from __future__ import annotations

import pytest

from maqee.apq.choose import choose_thresholds
from maqee.apq.figures import policy_figures
from maqee.apq.objective import best_metric_problem, least_cost_problem, outer_problem
from maqee.apq.options import SearchOptions
from maqee.apq.policy_path import PolicyPath, quick_policy
from maqee.apq.records import Scales, better
from maqee.apq.thresholds import coordinate_search, evaluated, grid_candidates
from maqee.policy import NEVER
from tests.apq.makers import make_trace

START = (0.8,) * 3


@pytest.mark.parametrize("seed", range(4))
def test_it_keeps_to_every_bound(seed: int) -> None:
    trace = make_trace(500, seed=seed)
    full = policy_figures(trace, (NEVER,) * 3)
    path = PolicyPath(least_cost_problem(trace, 1.0, full.bops), START)
    for metric in (full.metric - 0.1, full.metric - 0.02, full.metric, -path.most_careful):
        found = path.within(-metric)
        assert found.excess == 0
        assert policy_figures(trace, found.thresholds).metric >= metric - 1e-6
        assert found == evaluated(least_cost_problem(trace, metric, full.bops), found.thresholds)
        thorough = choose_thresholds(least_cost_problem(trace, metric, full.bops), START)
        assert found.objective <= thorough.objective * 1.05
    assert path.within(-1.0).excess == pytest.approx(1 + path.most_careful, abs=1e-6)  # the nearest there is


def test_the_best_metric_within_a_cost() -> None:
    trace = make_trace(500)
    most = 0.7 * policy_figures(trace, (NEVER,) * 3).bops
    found = quick_policy(best_metric_problem(trace, most), START)
    assert found.excess == 0
    thorough = choose_thresholds(best_metric_problem(trace, most), START)
    assert found.objective <= thorough.objective + 0.01


def test_without_a_limit_it_is_one_search() -> None:
    problem = outer_problem(make_trace(200), Scales(tau=(0.05,) * 3), SearchOptions())
    assert quick_policy(problem, START) == coordinate_search(problem, START)


def test_candidates_are_those_asked_for() -> None:
    found = quick_policy(least_cost_problem(make_trace(300), 0.7), START, grid_candidates)
    assert all(round(100 * value) / 100 == value for value in found.thresholds)


def test_it_begins_where_it_is_told() -> None:
    """The start and the closed policy are among what is looked at, so that neither is ever better."""
    problem = least_cost_problem(make_trace(100), 0.72)
    for start in ((0.8, 0.9, 0.7), (NEVER,) * 3):
        assert not better(evaluated(problem, start), quick_policy(problem, start))
