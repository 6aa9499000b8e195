"""Risk control: the promises, by simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from maqee.apq.control import Method, control
from maqee.apq.control_family import offset_family, policy_gaps

SETS, SAMPLES, DELTA = 1000, 100, 0.1


def population(loss: str) -> tuple[np.ndarray, np.ndarray]:
    """20,000 samples whose early exits are right about as often as they are confident, deeper ones more often."""
    generator = np.random.default_rng(5)
    skill = generator.random((20_000, 1))
    confidence = np.clip(skill + generator.normal(0, 0.15, (20_000, 3)) + [-0.1, 0.0, 0.1], 0, 1)
    right = generator.random((20_000, 4)) < np.concatenate([confidence, np.full((20_000, 1), 0.9)], axis=1)
    if loss == "zero-one":
        return confidence, 1.0 - right
    return confidence, 2 * np.where(right, 0.1, 0.8) * generator.random((20_000, 4))


def barely_below(risks: np.ndarray) -> float:
    """An epsilon that some member exceeds by a hair: the hardest case for a method that must not choose it."""
    return float(0.99 * risks[risks > 0.15][0])


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["zero-one", "brier"])
@pytest.mark.parametrize("method", ["ucb", "ltt", "crc"])
def test_promise_over_a_thousand_calibration_sets(method: Method, loss: Any) -> None:
    confidence, losses = population(loss)
    family = offset_family((0.8, 0.75, 0.7), steps=20)
    gaps = policy_gaps(confidence, losses, family)
    clipped = np.maximum(gaps, 0).mean(axis=0)  # the true risks: this is the population
    envelope = np.maximum.accumulate(gaps, axis=1).mean(axis=0)
    epsilon = barely_below(clipped)
    number = {tuple(row): index for index, row in enumerate(family.tolist())}
    generator = np.random.default_rng(11)
    chosen = np.empty(SETS, dtype=int)
    for index in range(SETS):
        rows = generator.integers(0, len(confidence), SAMPLES)
        found = control(confidence[rows], losses[rows], family, method=method, loss=loss, epsilon=epsilon, delta=DELTA)
        chosen[index] = number[found.thresholds]
    assert np.median(chosen) > 1  # and the methods do exit
    if method == "crc":
        standard_error = envelope[chosen].std() / math.sqrt(SETS)
        assert envelope[chosen].mean() <= epsilon + 3 * standard_error
        assert envelope[chosen].mean() > 0.7 * epsilon  # the promise is not kept by timidity
        assert (gaps.mean(axis=0) <= envelope).all()
    else:
        failures = (clipped[chosen] > epsilon).mean()
        assert failures <= DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / SETS)  # three sigmas of the binomial: 0.128


def test_naive_promises_nothing() -> None:
    """The same simulation without control: far more than a tenth of the calibration sets choose an unsafe policy."""
    confidence, losses = population("zero-one")
    family = offset_family((0.8, 0.75, 0.7), steps=20)
    gaps = policy_gaps(confidence, losses, family)
    true = gaps.mean(axis=0)
    epsilon = barely_below(true)
    draws = np.random.default_rng(3).integers(0, len(confidence), (300, SAMPLES))
    risks = gaps[draws].mean(axis=1)  # (sets, members)
    chosen = np.array([np.flatnonzero(row < epsilon).max() for row in risks])
    assert (true[chosen] > epsilon).mean() > 0.3
