"""What to expect on samples that did not choose the policy."""

from __future__ import annotations

import numpy as np
import pytest

from maqee.apq import (
    Budget,
    Found,
    Scales,
    SearchOptions,
    Trace,
    choose_policy,
    cross_validate,
    exit_costs,
    policy_figures,
)
from maqee.apq.validate import expected_from, falls_beyond_chance, fold_outcomes
from maqee.errors import MaqeeError
from tests.apq.makers import make_trace


def test_select_keeps_rows_together() -> None:
    trace = make_trace(6)
    some = trace.select(np.array([4, 1]))
    assert some.samples == 2
    for name in ("confidence", "float_confidence", "loss", "float_loss", "correct", "float_correct", "drift", "noise"):
        assert np.array_equal(getattr(some, name), getattr(trace, name)[[4, 1]]), name
    assert (some.bits, some.parts, some.model) == (trace.bits, trace.parts, trace.model)


def test_each_part_is_measured_with_thresholds_of_the_others() -> None:
    trace = make_trace(11)
    chosen_on: list[Trace] = []

    def choose(part: Trace) -> Found:
        chosen_on.append(part)
        return Found((0.0, 0.0, 0.0) if len(chosen_on) == 1 else (2.0, 2.0, 2.0), 0.0, 1.0)

    found = cross_validate(trace, choose, folds=2)
    assert found is not None
    # part 0 holds samples 0, 2, 4, 6, 8, 10: they leave at once; part 1 goes to the end
    assert [part.samples for part in chosen_on] == [5, 6]
    assert np.array_equal(chosen_on[0].confidence, trace.confidence[1::2])
    assert found.metric == pytest.approx((trace.correct[::2, 0].sum() + trace.correct[1::2, -1].sum()) / 11)
    assert found.mean_exit == pytest.approx((6 * 2 + 5 * 6) / 11)
    assert found.folds == 2


def test_thresholds_that_do_not_depend_on_samples_are_as_good_elsewhere() -> None:
    trace = make_trace(103)
    thresholds = (0.7, 0.8, 0.9)
    found, whole = cross_validate(trace, lambda part: Found(thresholds, 0.0, 0.0)), policy_figures(trace, thresholds)
    assert found is not None
    for name in ("metric", "bops", "mean_exit"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), rel=1e-12), name


@pytest.mark.slow
def test_it_is_nearer_to_the_truth_than_the_samples_that_chose() -> None:
    """Small draws from one population: how far is what a draw promises from what its thresholds do to everybody?"""
    everybody, budget, scales = make_trace(20_000, seed=1), Budget(max_drop=0.02), Scales()
    options = SearchOptions(scores="counted")
    order = np.random.default_rng(0).permutation(everybody.samples)
    promised, expected = [], []
    for start in range(0, 20 * 150, 150):
        draw = everybody.select(order[start : start + 150])
        thresholds = choose_policy(draw, budget, scales, options).thresholds
        truth = policy_figures(everybody, thresholds).metric - everybody.float_metric
        guess = cross_validate(draw, lambda part: choose_policy(part, budget, scales, options))
        assert guess is not None
        promised.append(policy_figures(draw, thresholds).metric - draw.float_metric - truth)
        expected.append(guess.metric - draw.float_metric - truth)
    assert np.mean(promised) > 0.01  # more than a point too good
    assert abs(np.mean(expected)) < 0.5 * np.mean(promised)


def test_one_part_leaves_nothing_to_choose_on() -> None:
    with pytest.raises(MaqeeError, match=r"^folds: 1 must be at least 2"):
        cross_validate(make_trace(9), lambda part: Found((0.5,) * 3, 0.0, 0.0), folds=1)


def test_too_few_samples_say_nothing() -> None:
    budget = Budget(max_drop=0.1)
    for samples, known in ((9, False), (10, True)):
        found = cross_validate(make_trace(samples), lambda part: choose_policy(part, budget, Scales(), SearchOptions()))
        assert (found is not None) is known


def test_outcomes_by_hand() -> None:
    """Samples 0, 2, 4 leave at once, after block 2; samples 1 and 3 go to the end, after block 6."""
    correct = np.array([[1, 0], [0, 0.5], [0, 1], [1, 1], [1, 0]])[:, [0, 0, 0, 1]]
    trace = make_trace(5, correct=correct)
    choices = iter([Found((0.0,) * 3, 0.25, 3.0), Found((2.0,) * 3, 0.0, 7.0)])
    outcomes = fold_outcomes(trace, lambda part: next(choices), folds=2)
    early, late = (float(cost) for cost in exit_costs(trace)[[0, -1]])
    first, second = outcomes
    assert (first.thresholds, first.excess, first.objective) == ((0.0,) * 3, 0.25, 3.0)
    assert (first.samples, first.metric_sum, first.metric_square_sum, first.exit_block_sum) == (3, 2.0, 2.0, 6.0)
    assert (first.bops_sum, first.bops_square_sum) == (3 * early, 3 * early**2)
    assert (second.samples, second.metric_sum, second.metric_square_sum, second.exit_block_sum) == (2, 1.5, 1.25, 12.0)
    late -= 3 * 50 * 16  # all exits are closed, so that their heads (50 multiply-accumulates at 4/4 bits) do not run
    assert (second.bops_sum, second.bops_square_sum) == (2 * late, 2 * late**2)
    found = expected_from(outcomes)
    assert found is not None
    assert found.metric == pytest.approx(3.5 / 5)
    assert (found.mean_exit, found.folds) == (18 / 5, 2)
    metrics, costs = np.array([1.0, 0.0, 1.0, 0.5, 1.0]), np.array([early] * 3 + [late] * 2)
    assert found.metric_error == pytest.approx(metrics.std(ddof=1) / 5**0.5)
    assert found.bops == pytest.approx(costs.mean())
    assert found.bops_error == pytest.approx(costs.std(ddof=1) / 5**0.5)


def test_the_standard_error_is_how_far_means_stray() -> None:
    """Of many draws, the means lie as far from each other as each draw says of itself."""
    everybody = make_trace(200_000, seed=2)
    found = []
    for start in range(0, 200_000, 1000):
        draw = everybody.select(np.arange(start, start + 1000))
        found.append(cross_validate(draw, lambda part: Found((0.8,) * 3, 0.0, 0.0)))
    for name in ("metric", "bops"):
        strayed = np.std([getattr(one, name) for one in found])
        assert np.mean([getattr(one, f"{name}_error") for one in found]) == pytest.approx(strayed, rel=0.2)


def test_no_outcomes_say_nothing() -> None:
    assert fold_outcomes(make_trace(9), lambda part: Found((0.5,) * 3, 0.0, 0.0)) == ()
    assert expected_from(()) is None


def test_what_falls_beyond_chance_by_hand() -> None:
    """Of 100 samples n fall by 1: the mean is -n / 100 and its standard error sqrt(n (1 - n / 100) / 99) / 10."""
    before = np.ones(100)
    for wrong, expected in (
        (0, False),
        (3, False),
        (4, True),
        (40, True),
    ):  # -0.03 and 2 x 0.0171; -0.04 and 2 x 0.0197
        after = np.repeat([0.0, 1.0], [wrong, 100 - wrong])
        assert falls_beyond_chance(before, after) is expected
        assert not falls_beyond_chance(after, before)  # better is never worse
    swapped = np.repeat([0.0, 1.0], [10, 90])
    assert not falls_beyond_chance(swapped, swapped[::-1])  # others are wrong, as many as before
    assert falls_beyond_chance(before, before - 0.01)  # all of them a little
