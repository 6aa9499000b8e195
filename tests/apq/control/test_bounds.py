"""Risk control: bounds and p-values, by hand and by property."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from maqee.apq.control.bounds import (
    betting_bound,
    betting_log_capital,
    binomial_p_value,
    hoeffding_bentkus_p_value,
    p_value_bound,
    risk_p_value,
)
from maqee.errors import MaqeeError

UNIT_LOSSES = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def test_betting_by_hand() -> None:
    # n = 2, B = 1, delta = e^-0.09: 2 ln(1/delta) / n = 0.09, so nu_1 = min(1, sqrt(0.09 / 0.25)) = 0.6.
    delta = math.exp(-0.09)
    first = 1 + 0.6 * 0.5  # x_1 = 0
    # x_1 = 1: mu_1 = (0.5 + 1) / 2 = 0.75, var_1 = (0.25 + 0.25^2) / 2 = 0.15625, nu_2 = sqrt(0.09 / 0.15625) = 0.759.
    nu_2 = math.sqrt(0.09 / 0.15625)
    assert betting_log_capital(np.array([0.0, 1.0]), 0.5, delta) == pytest.approx(
        math.log(first)
    )  # the largest capital
    both = (1 - 0.6 * (1 - 0.9)) * (1 + nu_2 * 0.9)
    assert betting_log_capital(np.array([1.0, 0.0]), 0.9, delta) == pytest.approx(math.log(both))


def test_betting_root_by_hand() -> None:
    # One sample, delta = e^-0.125: nu = sqrt(0.25 / 0.25) = 1 and 1 + U = e^0.125.
    assert betting_bound([0.0], math.exp(-0.125)) == pytest.approx(math.exp(0.125) - 1)
    # The same with B = 2 bets at most 1/2: 1 + U / 2 = e^0.125.
    assert betting_bound([0.0], math.exp(-0.125), bound=2.0) == pytest.approx(2 * (math.exp(0.125) - 1))
    # One sample cannot show anything at delta = 0.1: the trivial bound.
    assert betting_bound([0.0], 0.1) == 1.0


def test_betting_bound_is_not_fooled_by_sorted_samples() -> None:
    ordered = np.repeat([0.0, 1.0], 200)
    assert betting_log_capital(ordered, 0.3, 0.1) > math.log(10)  # the bare root would be below the mean 0.5
    assert betting_bound(ordered, 0.1) == 0.5


def test_columns_are_independent() -> None:
    table = np.random.default_rng(0).random((30, 4)) ** 2
    whole = betting_bound(table, 0.1)
    np.testing.assert_array_equal(whole, [betting_bound(column, 0.1) for column in table.T])
    np.testing.assert_array_equal(risk_p_value(table, 0.4), [risk_p_value(column, 0.4) for column in table.T])


def test_p_values_by_hand() -> None:
    assert binomial_p_value(1, 3, 0.5) == pytest.approx(0.5)  # (1 + 3) / 8
    # Mean 0 of 10 at eps 0.2: KL(0 || 0.2) = ln(1 / 0.8), so Hoeffding is 0.8^10; Bentkus is e times that.
    assert hoeffding_bentkus_p_value(0, 10, 0.2) == pytest.approx(0.8**10)
    # Mean 0.25 of 4 at eps 0.5: KL = 0.25 ln 0.5 + 0.75 ln 1.5; Binomial(4, 0.5) <= 1 is 5/16, times e is 0.849.
    divergence = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert hoeffding_bentkus_p_value(1, 4, 0.5) == pytest.approx(math.exp(-4 * divergence))
    assert math.exp(-4 * divergence) < math.e * 5 / 16
    # Total 0.5 is rounded up to 1 in Bentkus' part; far above epsilon nothing can be rejected.
    assert hoeffding_bentkus_p_value(4, 4, 0.5) == 1
    # Here Bentkus is the better one: e Pr(Bin(1000, 0.1) <= 70).
    bentkus = math.e * float(stats.binom.cdf(70, 1000, 0.1))
    assert hoeffding_bentkus_p_value(69.5, 1000, 0.1) == pytest.approx(bentkus)


def test_p_values_of_scaled_losses() -> None:
    brier = np.array([0.0, 0.5, 1.0, 0.1])
    assert risk_p_value(brier, 1.0, bound=2.0) == hoeffding_bentkus_p_value(0.8, 4, 0.5)
    assert risk_p_value(np.array([0.0, 1.0, 0.0]), 0.5) == binomial_p_value(1, 3, 0.5)


@given(UNIT_LOSSES, st.floats(0.01, 0.5), st.sampled_from([1.0, 2.0]))
def test_bounds_enclose_the_empirical_mean(values: list[float], delta: float, bound: float) -> None:
    losses = bound * np.array(values)
    for upper in (betting_bound(losses, delta, bound), p_value_bound(losses, delta, bound)):
        assert losses.mean() - 1e-12 <= upper <= bound


@given(UNIT_LOSSES, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_p_values_are_probabilities_and_fall_with_epsilon(values: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    easy, hard = risk_p_value(np.array(values), high), risk_p_value(np.array(values), low)
    assert 0 <= easy <= hard <= 1


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 500), st.floats(0.01, 0.99))
def test_p_values_rise_with_the_risk(one: float, other: float, n: int, epsilon: float) -> None:
    low, high = n * min(one, other), n * max(one, other)
    for p_value in (binomial_p_value, hoeffding_bentkus_p_value):
        assert p_value(low, n, epsilon) <= p_value(high, n, epsilon) + 1e-12


@given(st.integers(0, 20), st.integers(0, 20), st.floats(0.01, 0.99))
def test_one_more_correct_sample_is_more_evidence(errors: int, correct: int, epsilon: float) -> None:
    n = errors + correct + 1
    for p_value in (binomial_p_value, hoeffding_bentkus_p_value):
        assert p_value(errors, n + 1, epsilon) <= p_value(errors, n, epsilon) + 1e-12
    assert binomial_p_value(errors, n, epsilon) <= hoeffding_bentkus_p_value(errors, n, epsilon) + 1e-12
    assert betting_bound(np.zeros(n + 1), 0.1) <= betting_bound(np.zeros(n), 0.1)


def test_wrong_losses() -> None:
    with pytest.raises(MaqeeError, match="at least one sample"):
        betting_bound([], 0.1)
    with pytest.raises(MaqeeError, match="clip gaps"):
        risk_p_value([-0.5], 0.1)
