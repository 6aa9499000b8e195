"""Threshold search: against evaluation one by one, and downhill only."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maqee.apq.choose import choose_thresholds, shared_threshold
from maqee.apq.figures import policy_figures
from maqee.apq.frontier import controlled_performance, lambda_frontier, offset_sweep, undominated
from maqee.apq.objective import ExitProblem, Limit, least_cost_problem, outer_problem, with_cost_limit
from maqee.apq.options import SearchOptions
from maqee.apq.risks import Scales, measure_scales, risk_of_blocks
from maqee.apq.thresholds import (
    GRID,
    better,
    coordinate_search,
    evaluated,
    every_candidate,
    grid_candidates,
    near_candidates,
    scan_exit,
    sweep,
)
from maqee.apq.trace import Trace
from maqee.policy import NEVER
from tests.apq.makers import make_trace


@st.composite
def problems(draw: st.DrawFn, exits: int = 3, most: int = 12, step: int = 100) -> ExitProblem:
    """Small problems with many ties: confidences are hundredths."""
    samples = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    confidence = (rng.integers(0, step + 1, (samples, exits)) / step).astype(np.float32)
    limit = Limit(rng.normal(size=(samples, exits + 1)), float(rng.normal() * 0.5)) if draw(st.booleans()) else None
    return ExitProblem(
        confidence=confidence,
        value=rng.normal(size=(samples, exits + 1)),
        boundary=rng.integers(0, step + 1, (samples, exits)) / step,
        tau=rng.choice([0.0, 0.05, 0.1], exits),
        boundary_weight=rng.choice([0.0, 0.3, 1.0], exits),
        reaching=draw(st.booleans()),
        constant=0.5,
        limit=limit,
    )


@given(problems())
@settings(max_examples=60)
def test_a_scan_is_what_evaluation_says(problem: ExitProblem) -> None:
    thresholds = (0.4, 0.7, 0.55)
    for index in range(3):
        candidates = np.union1d(every_candidate(problem, index, 0.5), np.array(GRID[::5]))
        scan = scan_exit(problem, thresholds, index, candidates)
        for place, value in enumerate(candidates):
            moved = [*thresholds[:index], float(value), *thresholds[index + 1 :]]
            assert (scan.excess[place], scan.objective[place]) == pytest.approx(problem.evaluate(moved), abs=1e-9)


@given(problems(exits=2, most=8, step=40))
@settings(max_examples=60)
def test_every_candidate_misses_nothing(problem: ExitProblem) -> None:
    """No number on a much finer grid beats the candidates."""
    if problem.limit is not None:
        problem = replace(problem, limit=None)
    thresholds = (0.5, 0.5)
    for index in range(2):
        best = scan_exit(problem, thresholds, index, every_candidate(problem, index, 0.5)).objective.min()
        fine = np.arange(4001) / 4000
        assert best <= scan_exit(problem, thresholds, index, fine).objective.min() + 1e-12


@given(problems(), st.sampled_from([grid_candidates, every_candidate, near_candidates(0.1)]))
@settings(max_examples=60)
def test_the_objective_never_rises(problem: ExitProblem, candidates: Any) -> None:
    found = evaluated(problem, (0.8, 0.8, 0.8))
    for _ in range(5):
        after = sweep(problem, found, candidates)
        assert after == found or better(after, found)
        assert (after.excess, after.objective) == problem.evaluate(after.thresholds)
        found = after


@given(problems())
@settings(max_examples=30)
def test_the_end_is_a_local_optimum(problem: ExitProblem) -> None:
    found = coordinate_search(problem, (0.8,) * 3)
    for index, value in product(range(3), GRID):
        moved = (*found.thresholds[:index], value, *found.thresholds[index + 1 :])
        assert not better(evaluated(problem, moved), found)


def test_near_candidates() -> None:
    problem = outer_problem(make_trace(), Scales(tau=(0.05,) * 3), SearchOptions())
    assert near_candidates(0.02)(problem, 0, 0.5).tolist() == [0.48, 0.49, 0.5, 0.51, 0.52, NEVER]
    assert near_candidates(0.02)(problem, 0, NEVER).tolist() == [0.98, 0.99, 1.0, NEVER]


_OPTIONS: list[dict[str, Any]] = [
    {}, {"pgr_samples": "all"}, {"pgr_reference": "quantized"}, {"bsr_samples": "reaching"},
    {"bsr_confidence": "quantized"}, {"use_bsr": False}, {"use_pgr": False}, {"alpha": 0.2, "lambda_outer": 2.0},
]  # fmt: skip


@pytest.mark.parametrize("changes", _OPTIONS, ids=str)
def test_the_objective_is_the_sum_of_risks_and_cost(changes: dict[str, Any]) -> None:
    """J of Algorithm 1, put together from the risks themselves."""
    trace, options = make_trace(), SearchOptions(**changes)
    scales = measure_scales(trace, trace, options)
    for thresholds in ((0.8, 0.8, 0.8), (0.6, NEVER, 0.95), (0.0, 0.5, 0.5)):
        risks = risk_of_blocks(trace, thresholds, scales, replace(options, headless="zero"))
        exits = [block - 1 for block in trace.exit_blocks[:-1]]
        figures = policy_figures(trace, thresholds)
        expected = risks[exits].sum() + options.lambda_outer * figures.bops / scales.cost
        if options.pgr_samples == "leaving" and options.pgr_reference == "float":
            taken = figures.exit_mass[-1]  # full depth has a gap of its own, between the two models
            gap = (trace.loss[:, -1].astype(float) - trace.float_loss[:, -1]) * (trace_at_full_depth(trace, thresholds))
            assert taken == pytest.approx(trace_at_full_depth(trace, thresholds).mean())
            expected += options.alpha * options.use_pgr * gap.mean() / scales.pgr
        assert outer_problem(trace, scales, options).evaluate(thresholds) == pytest.approx((0.0, expected), abs=1e-9)


def trace_at_full_depth(trace: Trace, thresholds: tuple[float, ...]) -> Any:
    """1 for samples that no exit lets go."""
    return (trace.confidence[:, :-1] < np.array(thresholds, dtype=np.float32)).all(axis=1)


def test_the_sum_over_blocks() -> None:
    """Exits after blocks 2, 3, 4 of 6: the first exit stands for two blocks, and blocks 5 and 6 have no decision."""
    trace, options = make_trace(), SearchOptions(outer_sum="blocks", pgr_reference="quantized")
    scales = measure_scales(trace, trace, options)
    thresholds = (0.7, 0.9, 0.8)
    cost = options.lambda_outer * policy_figures(trace, thresholds).bops / scales.cost
    expected = risk_of_blocks(trace, thresholds, scales, options).sum() + cost
    assert outer_problem(trace, scales, options).evaluate(thresholds)[1] == pytest.approx(expected, abs=1e-9)


def test_the_printed_objective_is_degenerate() -> None:
    """PGR over all samples does not see thresholds, so everybody leaves at once; with the joint form nobody must."""
    trace = make_trace(2000)
    options = SearchOptions(pgr_samples="all", use_bsr=False)
    scales = measure_scales(trace, trace, options)
    printed = choose_thresholds(outer_problem(trace, scales, options), (0.8,) * 3)
    assert policy_figures(trace, printed.thresholds).mean_exit == 2.0
    joint = choose_thresholds(outer_problem(trace, scales, replace(options, pgr_samples="leaving")), (0.8,) * 3)
    assert policy_figures(trace, joint.thresholds).mean_exit > 3.0


def test_the_reference_of_pgr_does_not_move_thresholds() -> None:
    trace = make_trace(500)
    scales = measure_scales(trace, trace, SearchOptions())
    problems = [outer_problem(trace, scales, SearchOptions(pgr_reference=kind)) for kind in ("float", "quantized")]
    one, other = (coordinate_search(problem, (0.8,) * 3) for problem in problems)
    assert one.thresholds == other.thresholds


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


def test_least_cost_with_an_accuracy() -> None:
    trace = make_trace(1000)
    full = float(trace.correct[:, -1].mean())
    found = choose_thresholds(least_cost_problem(trace, full - 0.02), (0.8,) * 3)
    figures = policy_figures(trace, found.thresholds)
    assert found.excess == 0
    assert figures.metric >= full - 0.02 - 1e-6
    assert figures.bops < policy_figures(trace, (NEVER,) * 3).bops
    assert found.objective == pytest.approx(figures.bops)
    beyond = choose_thresholds(least_cost_problem(trace, 1.01), (0.8,) * 3)
    assert beyond.excess > 0  # the nearest there is
    best = max(policy_figures(trace, (value,) * 3).metric for value in GRID)
    assert 1.01 - beyond.excess >= best - 1e-6


def test_a_limit_on_cost() -> None:
    trace = make_trace(1000)
    scales = measure_scales(trace, trace, SearchOptions())
    most = 0.7 * policy_figures(trace, (NEVER,) * 3).bops
    problem = with_cost_limit(outer_problem(trace, scales, SearchOptions()), trace, most, scales.cost)
    found = choose_thresholds(problem, (0.8,) * 3)
    assert found.excess == 0
    assert policy_figures(trace, found.thresholds).bops <= most * (1 + 1e-6)


def test_the_frontier() -> None:
    trace, options = make_trace(500), SearchOptions(use_bsr=False)
    scales = measure_scales(trace, trace, options)
    points = lambda_frontier(trace, [0.0, 0.25, 0.5, 1.0, 4.0], scales, options)
    costs = [point.figures.bops for point in points]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]
    kept = undominated(points)
    assert all(a.figures.metric < b.figures.metric for a, b in pairwise(kept))


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
