"""What an answer is worth by the confidences of its image: by hand, and better for samples that did not choose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq import Budget, SearchOptions, policy_figures
from maqee.apq.choose import choose_policy
from maqee.apq.figures import exit_bops
from maqee.apq.records import Scales
from maqee.apq.smoothing import fit_scores, smoothed
from tests.apq.makers import make_trace


def test_without_features_it_is_the_mean() -> None:
    assert fit_scores(np.ones((4, 1)), np.array([1.0, 1.0, 0.0, 1.0])) == pytest.approx([0.75] * 4)


def test_two_kinds_of_samples_by_hand() -> None:
    """50 samples with x = -1 and scores 1/4, 50 with x = 1 and scores 3/4, which the ridge draws together.

    By symmetry the intercept is 0, and the slope b has 100 (3/4 - 1 / (1 + exp(-b))) = b: 1.0437 where without the
    ridge it would be log 3 = 1.0986.
    """
    features = np.stack([np.ones(100), np.repeat([-1.0, 1.0], 50)], axis=1)
    fitted = fit_scores(features, np.repeat([0.25, 0.75], 50))
    slope = np.log(fitted[-1] / fitted[0])
    assert fitted[0] + fitted[-1] == pytest.approx(1)
    assert slope == pytest.approx(1.0437, abs=1e-4)
    assert 100 * (0.75 - fitted[-1]) == pytest.approx(slope, abs=1e-6)


@given(
    scores=st.lists(st.tuples(st.floats(0, 1), st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=40),
    told_apart=st.booleans(),
)
def test_the_mean_stays(scores: list[tuple[float, float, float]], told_apart: bool) -> None:
    """Whatever the scores, also where the features tell right from wrong without an error."""
    y, *x = np.array(scores).T
    y = (x[0] > 0).astype(np.float64) if told_apart else y
    fitted = fit_scores(np.stack([np.ones_like(y), *x], axis=1), y)
    assert ((fitted >= 0) & (fitted <= 1)).all()
    assert fitted.mean() == pytest.approx(y.mean(), abs=1e-5)


def test_it_finds_the_odds_that_made_the_answers() -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([np.ones((40_000, 1)), generator.normal(size=(40_000, 3))], axis=1)
    odds = x @ [0.5, 1.0, -0.5, 0.0]
    truth = 1 / (1 + np.exp(-odds))
    answers = (generator.random(40_000) < truth).astype(np.float64)
    assert np.abs(fit_scores(x, answers) - truth).max() < 0.05


def test_a_trace_keeps_all_but_its_scores() -> None:
    trace = make_trace(60)
    judged = smoothed(trace)
    assert judged.correct.dtype == trace.correct.dtype
    assert judged.correct.mean(axis=0) == pytest.approx(trace.correct.mean(axis=0), abs=1e-5)
    assert np.array_equal(judged.confidence, trace.confidence)
    assert ((judged.correct > 0) & (judged.correct < 1)).all()


def test_only_the_order_of_confidences_matters() -> None:
    trace = make_trace(60)
    squeezed = replace(trace, confidence=(np.sqrt(trace.confidence) / 2).astype(np.float32))
    assert np.array_equal(smoothed(squeezed).correct, smoothed(trace).correct)


def test_exits_that_are_always_equally_sure() -> None:
    trace = make_trace(40, confidence=np.full((40, 4), 1.0, dtype=np.float32))
    assert smoothed(trace).correct == pytest.approx(np.tile(trace.correct.mean(axis=0), (40, 1)), abs=1e-5)


@pytest.mark.slow
def test_policies_are_better_for_everybody_else() -> None:
    """Small draws from one population choose thresholds within a cost, both ways; everybody judges them."""
    everybody = make_trace(20_000, seed=1)
    costs = exit_bops(everybody)
    budget = Budget(max_bops=float(costs[0] + 0.6 * (costs[-1] - costs[0])))
    order = np.random.default_rng(0).permutation(everybody.samples)
    ways = (SearchOptions(), SearchOptions(scores="counted"))
    gained = []
    for start in range(0, 30 * 150, 150):
        draw = everybody.select(order[start : start + 150])
        chosen = [choose_policy(draw, budget, Scales(), options).thresholds for options in ways]
        smooth, count = (policy_figures(everybody, thresholds).metric for thresholds in chosen)
        gained.append(smooth - count)
    assert np.mean(gained) > 3 * np.std(gained) / np.sqrt(len(gained)), gained
