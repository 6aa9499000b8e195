"""Several starts: never worse than one."""

from __future__ import annotations

from maqee.apq.choose import choose_thresholds, shared_threshold
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
