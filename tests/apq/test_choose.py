"""Several starts: never worse than one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from maqee.apq.budget import Budget
from maqee.apq.choose import choose_policy, choose_thresholds, shared_threshold
from maqee.apq.figures import policy_figures
from maqee.apq.objective import outer_problem
from maqee.apq.options import SearchOptions
from maqee.apq.records import better
from maqee.apq.risks import measure_scales
from maqee.apq.thresholds import coordinate_search, evaluated
from maqee.policy import NEVER
from tests.apq.makers import make_trace


def test_more_starts_are_never_worse() -> None:
    for seed in range(5):
        trace = make_trace(400, seed=seed)
        scales = measure_scales(trace, trace, SearchOptions())
        problem = outer_problem(trace, scales, SearchOptions(lambda_outer=1.5, bsr_samples="reaching"))
        chosen = choose_thresholds(problem, (0.8,) * 3)
        assert not better(coordinate_search(problem, (0.8,) * 3), chosen)
        assert not better(shared_threshold(problem), chosen)
        for depth in range(3):  # everybody at the same depth
            assert not better(evaluated(problem, (NEVER,) * depth + (0.0,) * (3 - depth)), chosen)


@pytest.mark.parametrize("asked", [{"max_drop": 0.02}, {"max_bops": 90_000.0}, {}], ids=str)
def test_crowded_confidences_are_told_apart(asked: dict[str, float]) -> None:
    """Squeezed between 0.88 and 0.96, confidences choose as well as they did; hundredths hardly choose at all."""
    wide = make_trace(600)
    low, high = wide.confidence.min(), wide.confidence.max()
    confidence = 0.88 + 0.08 * (wide.confidence.astype(np.float64) - low) / (high - low)
    narrow = make_trace(600, confidence=confidence)
    options = SearchOptions(use_bsr=False, scores="counted")
    scales, budget = measure_scales(wide, wide, options), Budget(**asked)  # type: ignore[arg-type]
    before, after = (choose_policy(trace, budget, scales, options) for trace in (wide, narrow))
    assert after.objective == pytest.approx(before.objective, abs=1e-9)
    assert policy_figures(narrow, after.thresholds).exit_mass == policy_figures(wide, before.thresholds).exit_mass
    hundredths = choose_policy(narrow, budget, scales, replace(options, candidates="grid"))
    assert hundredths.objective > after.objective + 1e-3


def test_the_grid_stays_on_the_grid() -> None:
    trace = make_trace(300)
    options = SearchOptions(candidates="grid")
    found = choose_policy(trace, Budget(max_drop=0.02), measure_scales(trace, trace, options), options)
    assert all(round(100 * value) / 100 == value for value in found.thresholds)
