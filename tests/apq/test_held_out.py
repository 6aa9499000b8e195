"""A metric that is reached on samples that did not choose the policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from maqee.apq import Budget, Scales, SearchOptions, choose_policy, exit_costs, policy_figures
from maqee.apq.held_out import _MOST_TRIALS, ExpectedChoice, _smallest_margin, choose_expected, expected_choice
from maqee.apq.records import Found
from maqee.apq.validate import expected_from
from maqee.policy import NEVER
from tests.apq.makers import make_trace

OPTIONS = SearchOptions()


def test_the_expected_metric_reaches_the_target() -> None:
    for seed in range(6):
        trace = make_trace(300, seed=seed)
        scales, budget = Scales(cost=float(exit_costs(trace)[-1])), Budget(max_drop=0.03)
        needed = trace.float_metric - 0.03
        choice = expected_choice(trace, budget, scales, OPTIONS)
        assert choice.expected is not None
        assert choice.expected == expected_from(choice.outcomes)
        assert choice[:2] == choose_expected(trace, budget, scales, OPTIONS)
        assert choice.found.excess == 0
        assert choice.expected.metric >= needed - 1e-9
        figures = policy_figures(trace, choice.found.thresholds)
        assert choice.found.objective == pytest.approx(figures.bops / scales.cost)
        assert figures.metric >= needed - 1e-6  # what holds for others holds for those who chose
        assert choice.found.objective <= 1.0  # full depth, which reaches it here, is the dearest


def test_a_target_beyond_reach_gives_the_nearest() -> None:
    trace = make_trace(200)
    found, expected = choose_expected(trace, Budget(min_metric=1.0), Scales(), OPTIONS)
    assert expected is not None
    assert found.excess == pytest.approx(1 - expected.metric)
    assert expected.metric >= trace.full_metric - 1e-9  # full depth for everybody is always a choice


def test_full_depth_where_nothing_else_is_sure() -> None:
    """Exits that answer at random but are as good as full depth for a lucky few: no choice among them holds."""
    rng = np.random.default_rng(0)
    correct = np.column_stack([rng.random((60, 3)) < 0.5, np.ones(60)])
    trace = make_trace(60, correct=correct, confidence=rng.random((60, 4)))
    found, expected = choose_expected(trace, Budget(min_metric=1.0), Scales(), OPTIONS)
    assert expected is not None
    assert found.excess == 0
    assert expected.metric == 1.0
    assert found.thresholds == (NEVER,) * 3


@pytest.mark.parametrize("changes", [{"target_on": "calibration"}, {"min_metric": None, "max_bops": 90_000.0}], ids=str)
def test_otherwise_it_is_the_usual_choice(changes: dict[str, object]) -> None:
    trace, budget = make_trace(100), replace(Budget(min_metric=0.7), **changes)  # type: ignore[arg-type]
    found, expected = choose_expected(trace, budget, Scales(), OPTIONS, (0.7, 0.8, 0.9))
    assert found == choose_policy(trace, budget, Scales(), OPTIONS, (0.7, 0.8, 0.9))
    assert expected is not None
    assert expected.metric_error is not None


def test_too_few_samples_to_split() -> None:
    trace, budget = make_trace(9), Budget(min_metric=0.5)
    assert choose_expected(trace, budget, Scales(), OPTIONS) == (choose_policy(trace, budget, Scales(), OPTIONS), None)


def test_it_holds_on_fresh_samples_more_often() -> None:
    """Small draws from one population, a drop of two points from the draw's own full depth, judged on everybody."""
    everybody = make_trace(20_000, seed=1)
    order = np.random.default_rng(0).permutation(everybody.samples)
    margins: dict[str, list[float]] = {"expected": [], "calibration": []}
    for start in range(0, 25 * 200, 200):
        draw = everybody.select(order[start : start + 200])
        for where, kept in margins.items():
            budget = Budget(max_drop=0.02, target_on=where)  # type: ignore[arg-type]
            found, _ = choose_expected(draw, budget, Scales(), OPTIONS)
            kept.append(policy_figures(everybody, found.thresholds).metric - (everybody.float_metric - 0.02))
    on_others, on_its_own = (np.array(margins[where]) for where in ("expected", "calibration"))
    assert (on_others >= 0).mean() > (on_its_own >= 0).mean() + 0.1
    assert on_its_own.mean() < -0.01  # chosen on few samples, a target is missed by more than a point
    assert on_others.mean() > on_its_own.mean() + 0.01


class Margins:
    """Choices whose expected metric falls short until a margin is large enough; cost is the margin."""

    def __init__(self, enough: float) -> None:
        self.enough, self.tried = enough, list[float]()

    def __call__(self, margin: float) -> ExpectedChoice:
        self.tried.append(margin)
        return ExpectedChoice(Found((margin,), max(self.enough - margin, 0.0), margin), None, ())


CLOSED = ExpectedChoice(Found((NEVER,), 0.0, 5.0), None, ())


def test_the_smallest_margin() -> None:
    none, some, more = Margins(0.0), Margins(0.3), Margins(2.0)
    assert _smallest_margin(none, 1.0, CLOSED, 1e-3).found.thresholds == (0.0,)
    assert none.tried == [0.0]
    found = _smallest_margin(some, 1.0, CLOSED, 1e-3).found
    assert some.tried[:4] == [0.0, 1.0, 0.5, 0.25]
    assert 0.3 <= found.objective <= 0.3 + 1 / 2 ** (_MOST_TRIALS - 2)
    assert _smallest_margin(more, 1.0, CLOSED, 1e-3) == CLOSED
    assert more.tried[:4] == [0.0, 1.0, 0.5, 0.25]  # the boldest choice on the samples at hand need not be the best
    assert max(len(margins.tried) for margins in (some, more)) <= _MOST_TRIALS
    nothing_to_raise = Margins(0.1)
    _smallest_margin(nothing_to_raise, 0.0, CLOSED, 1e-3)
    assert nothing_to_raise.tried == [0.0]


def test_margins_closer_than_half_a_sample_are_not_told_apart() -> None:
    some = Margins(0.3)
    _smallest_margin(some, 1.0, CLOSED, 0.2)
    assert some.tried == [0.0, 1.0, 0.5, 0.25, 0.375]
