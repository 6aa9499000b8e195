"""The objective: put together from the risks themselves, and what its readings lead to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from maqee.apq.budget import Budget
from maqee.apq.choose import choose_thresholds
from maqee.apq.figures import policy_figures
from maqee.apq.objective import (
    ExitProblem,
    Limit,
    best_metric_problem,
    least_cost_problem,
    outer_problem,
    problem_within,
    with_cost_limit,
)
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales
from maqee.apq.risks import measure_scales, risk_of_blocks
from maqee.apq.smoothing import smoothed
from maqee.apq.thresholds import (
    GRID,
    coordinate_search,
)
from maqee.apq.trace import Trace
from maqee.policy import NEVER
from tests.apq.makers import make_trace

_OPTIONS: list[dict[str, Any]] = [
    {}, {"pgr_samples": "all"}, {"pgr_reference": "quantized"}, {"bsr_samples": "reaching"},
    {"bsr_confidence": "quantized"}, {"use_bsr": False}, {"use_pgr": False}, {"alpha": 0.2, "lambda_outer": 2.0},
    {"bsr_scale": "fixed"},
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


def test_the_best_metric_within_a_cost() -> None:
    """Against all combinations of a few thresholds: the most right answers, and the cheapest way to them."""
    trace = make_trace(60)
    most = 0.7 * policy_figures(trace, (NEVER,) * 3).bops
    problem = best_metric_problem(trace, most, 123.0)
    policies = list(product((0.0, 0.6, 0.7, 0.8, 0.9, NEVER), repeat=3))
    figures = [policy_figures(trace, policy) for policy in policies]
    affordable = [(-found.metric, found.bops) for found in figures if found.bops <= most]
    best = min((problem.evaluate(policy), place) for place, policy in enumerate(policies))
    assert best[0][0] == 0
    assert (-figures[best[1]].metric, figures[best[1]].bops) == pytest.approx(min(affordable), abs=1e-9)
    for policy, found in zip(policies, figures, strict=True):
        excess, objective = problem.evaluate(policy)
        assert excess == pytest.approx(max(found.bops - most, 0) / 123.0, rel=1e-6, abs=1e-6)
        if excess == 0:  # all there is to spend weighs half a right answer
            assert 0 < objective + found.metric <= 0.5 / 60 + 1e-12


def test_a_budget_becomes_a_problem() -> None:
    trace, options = make_trace(300), SearchOptions(scores="counted")
    scales = measure_scales(trace, trace, options)
    thresholds = (0.7, 0.9, 0.8)
    figures = policy_figures(trace, thresholds)
    plain = outer_problem(trace, scales, options).evaluate(thresholds)
    limited = Budget(max_bops=figures.bops / 2)
    for how in (options, replace(options, objective="paper")):
        assert problem_within(Budget(), trace, scales, how).evaluate(thresholds) == plain
        excess, objective = problem_within(limited, trace, scales, how).evaluate(thresholds)
        assert excess == pytest.approx(figures.bops / 2 / scales.cost)
        # The tie-break: twice what may be spent weighs as much as one sample's answer.
        wanted = plain[1] if how.objective == "paper" else 1 / 300 - figures.metric
        assert objective == pytest.approx(wanted, abs=1e-6)
        for budget, asked in (
            (Budget(min_metric=1.0), 1.0),
            (Budget(max_drop=0.0), trace.float_metric),
            (Budget(max_drop=0.0, drop_from="quantized"), trace.full_metric),
        ):
            excess, objective = problem_within(budget, trace, scales, how).evaluate(thresholds)
            assert excess == pytest.approx(max(asked - figures.metric, 0.0), abs=1e-6)
            assert objective == pytest.approx(figures.bops / scales.cost)


def test_answers_are_smoothed_unless_these_very_samples_are_meant() -> None:
    trace, thresholds = make_trace(300), (0.7, 0.9, 0.8)
    counted, judged = (policy_figures(one, thresholds).metric for one in (trace, smoothed(trace)))
    assert abs(counted - judged) > 1e-3
    for options, budget, metric in (
        (SearchOptions(), Budget(min_metric=1.0), judged),
        (SearchOptions(), Budget(min_metric=1.0, target_on="calibration"), counted),
        (SearchOptions(scores="counted"), Budget(min_metric=1.0), counted),
    ):
        excess, _ = problem_within(budget, trace, Scales(), options).evaluate(thresholds)
        assert excess == pytest.approx(1 - metric, abs=1e-6)


def test_what_was_sorted_stays_sorted() -> None:
    trace = make_trace(50)
    problem = least_cost_problem(trace, 0.7)
    bounded, priced = problem.bounded(-0.6), problem.priced(2.0)
    assert bounded.limit is not None
    assert problem.limit is not None
    assert (bounded.limit.bound, problem.limit.bound, priced.limit) == (-0.6, -0.7, None)
    for other in (bounded, priced):
        assert other.orders is problem.orders
        assert other.quantiles is problem.quantiles
    thresholds = (0.7, 0.9, 0.8)
    assert bounded.evaluate(thresholds) == least_cost_problem(trace, 0.6).evaluate(thresholds)
    priced_in = 2 * problem.spent(thresholds)
    assert priced.evaluate(thresholds)[1] == pytest.approx(problem.evaluate(thresholds)[1] + priced_in)


def test_closed_exits_save_their_heads() -> None:
    """Worked out by hand: three samples, two exits; heads are 0.5 and 0.25 of the values, 2 and 4 of what is spent."""
    problem = ExitProblem(
        confidence=np.array([[0.9, 0.9], [0.1, 0.9], [0.1, 0.1]], dtype=np.float32),
        value=np.tile([1.0, 2.0, 3.0], (3, 1)),
        boundary=np.zeros((3, 2)),
        tau=np.zeros(2),
        boundary_weight=np.zeros(2),
        limit=Limit(np.tile([10.0, 20.0, 30.0], (3, 1)), 0.0, np.array([2.0, 4.0])),
        heads=np.array([0.5, 0.25]),
    )
    assert problem.evaluate((0.5, 0.5)) == pytest.approx(((10 + 20 + 30) / 3, (1 + 2 + 3) / 3))
    # The first is closed: two leave at the second, and all three have passed the first.
    assert problem.evaluate((NEVER, 0.5)) == pytest.approx(((20 + 20 + 30) / 3 - 2, (2 + 2 + 3) / 3 - 0.5))
    # The second is closed: one leaves before it, the other two pass it.
    assert problem.evaluate((0.5, NEVER)) == pytest.approx(((10 + 30 + 30 - 8) / 3, (1 + 3 + 3 - 0.5) / 3))
    assert problem.evaluate((NEVER, NEVER)) == pytest.approx((30 - 6, 3 - 0.75))
    # A threshold that nobody reaches is not closed: the head must be run to find that out.
    assert problem.evaluate((1.0, 1.0)) == pytest.approx((30, 3))
    assert problem.spent((NEVER, 0.5)) == pytest.approx(70 / 3 - 2)
    assert problem.priced(0.1).evaluate((NEVER, NEVER)) == pytest.approx((0, 3 - 0.75 + 0.1 * 24))


def test_closing_an_exit_that_nobody_should_take_pays() -> None:
    """The first exit is always wrong: at the same metric the search closes it and does not only raise its threshold."""
    trace = make_trace(300)
    useless = trace.correct.copy()
    useless[:, 0] = 0
    trace = replace(trace, correct=useless)
    found = choose_thresholds(least_cost_problem(trace, trace.full_metric - 0.01), (0.8,) * 3)
    assert found.thresholds[0] == NEVER
    shut, raised = (policy_figures(trace, (first, *found.thresholds[1:])) for first in (NEVER, 1.0))
    assert shut.exit_mass == raised.exit_mass
    assert raised.bops - shut.bops == pytest.approx(50 * 16)  # the head's multiply-accumulates at 4/4 bits
