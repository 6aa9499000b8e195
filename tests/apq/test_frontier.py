"""One trace, many policies."""

from __future__ import annotations

from maqee.apq.frontier import controlled_performance, lambda_frontier, offset_sweep
from maqee.apq.options import SearchOptions
from maqee.apq.risks import measure_scales
from maqee.policy import NEVER
from tests.apq.makers import make_trace


def test_the_frontier() -> None:
    trace, options = make_trace(500), SearchOptions(use_bsr=False)
    scales = measure_scales(trace, trace, options)
    points = lambda_frontier(trace, [0.0, 0.25, 0.5, 1.0, 4.0], scales, options)
    costs = [point.figures.bops for point in points]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_one_offset_for_all() -> None:
    trace = make_trace(500)
    points = {point.setting: point for point in offset_sweep(trace, (0.8, NEVER, 0.95))}
    assert len(points) == 201
    assert points[0.0].thresholds == (0.8, NEVER, 0.95)
    assert points[0.1].thresholds == (0.9, NEVER, NEVER)
    assert points[-0.9].thresholds == (0.0, NEVER, 0.05)
    target = float(trace.correct[:, -1].mean()) - 0.02
    point = controlled_performance(trace, (0.8, 0.85, 0.95), target)
    assert point is not None
    assert point.figures.metric >= target - 1e-9
    for other in offset_sweep(trace, (0.8, 0.85, 0.95)):
        assert other.figures.metric < target or other.figures.bops >= point.figures.bops
    assert controlled_performance(trace, (0.8, 0.85, 0.95), 1.01) is None
