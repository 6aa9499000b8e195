"""Risk control: the formulas by hand, the promises by simulation."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from maqee.apq.control import Guarantee, Method, control
from maqee.apq.control_bounds import (
    betting_bound,
    betting_log_capital,
    binomial_p_value,
    hoeffding_bentkus_p_value,
    p_value_bound,
    risk_p_value,
)
from maqee.apq.control_family import exits_taken, offset_family, policy_gaps, shared_family
from maqee.apq.control_losses import brier_losses, zero_one_losses
from maqee.errors import MaqeeError
from maqee.exits.policy import NEVER
from maqee.io import to_json

UNIT_LOSSES = st.lists(st.floats(0, 1), min_size=1, max_size=40)


# --- losses and families ---------------------------------------------------------------------------------------------


def test_losses_by_hand() -> None:
    probabilities: list[list[list[float]]] = [[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]]
    assert zero_one_losses(probabilities, [1, 0]).tolist() == [[1, 0], [1, 0]]
    # 0.49 + 0.64 + 0.01, 0.01 + 0.04 + 0.01; the worst possible score is 2.
    np.testing.assert_allclose(brier_losses(probabilities, [1, 0]), [[1.14, 0.06], [2.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[0.5, 0.5]], [0], r"\(samples, exits \+ 1, classes\)"),
        ([[[3.0, -1.0]]], [0], "apply the softmax"),
        ([[[math.nan, 1.0]]], [0], "apply the softmax"),
        ([[[0.5, 0.5]]], [0, 1], "one whole number"),
        ([[[0.5, 0.5]]], [0.5], "one whole number"),
        ([[[0.5, 0.5]]], [2], "from 0 to 1, but go from 2 to 2"),
    ],
)
def test_wrong_probabilities(probabilities: Any, labels: Any, message: str) -> None:
    for losses in (zero_one_losses, brier_losses):
        with pytest.raises(MaqeeError, match=message):
            losses(probabilities, labels)


def test_families_by_hand() -> None:
    assert shared_family(2, steps=2).tolist() == [[NEVER, NEVER], [1, 1], [0.5, 0.5], [0, 0]]
    # Offsets 1, 0.5, 0, -0.5, -1; the second exit is switched off by the plan and stays off.
    assert offset_family((0.75, NEVER, 0.25), steps=2).tolist() == [
        [NEVER, NEVER, NEVER],
        [1, NEVER, 1],
        [1, NEVER, 0.75],
        [0.75, NEVER, 0.25],
        [0.25, NEVER, 0],
        [0, NEVER, 0],
    ]


def test_plan_itself_is_a_member() -> None:
    plan = (0.83, 0.71, 0.6001)
    assert list(plan) in offset_family(plan).tolist()


def test_exits_and_gaps_by_hand() -> None:
    confidence = np.array([[0.9, 0.2], [0.5, 0.8], [0.1, 1.0]])
    family = np.array([[NEVER, NEVER], [1.0, 1.0], [0.8, 0.8], [0.0, 0.0]])
    assert exits_taken(confidence, family).tolist() == [[2, 2, 0, 0], [2, 2, 1, 0], [2, 1, 1, 0]]
    assert exits_taken(confidence, [0.9, 0.8]).tolist() == [0, 1, 1]
    losses = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    assert policy_gaps(confidence, losses, family).tolist() == [[0, 0, 1, 1], [0, 0, 0, -1], [0, -1, -1, 0]]


# --- bounds ----------------------------------------------------------------------------------------------------------


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


# --- choosing --------------------------------------------------------------------------------------------------------


def ladder(gaps: list[list[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two exits and full depth; member 1 sends all to exit 2, member 2 all to exit 1, with the given losses there."""
    table = np.array(gaps)  # (n, 2): losses of exit 1 and 2, full depth has none
    losses = np.concatenate([table, np.zeros((len(table), 1))], axis=1)
    confidence = np.tile([0.3, 0.6], (len(table), 1))
    return confidence, losses, np.array([[NEVER, NEVER], [0.5, 0.5], [0.2, 0.2]])


def pick(
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray], method: Method, epsilon: float, **options: Any
) -> Guarantee:
    return control(*arrays, method=method, loss=options.pop("loss", "zero-one"), epsilon=epsilon, **options)


def test_crc_by_hand() -> None:
    # n = 9: 1 error at exit 2, 3 at exit 1, of which 2 on other samples: the envelope of member 2 has 3 errors.
    rows = [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]] + [[0.0, 0.0]] * 6
    arrays = ladder(rows)
    # (9 R + 1) / 10 <= epsilon: member 1 has R = 1/9, so 0.2; member 2's own R is 2/9 (0.3), its envelope 3/9 (0.4).
    for epsilon, member, bound in [(0.19, 0, 0.0), (0.2, 1, 0.2), (0.39, 1, 0.2), (0.4, 2, 0.4)]:
        found = pick(arrays, "crc", epsilon)
        assert found.thresholds == tuple(arrays[2][member])
        assert found.bound == pytest.approx(bound)
        assert found.delta is None
    assert found.empirical_risk == pytest.approx(3 / 9)
    assert found.empirical_gap == pytest.approx(2 / 9)


def test_ltt_by_hand() -> None:
    # 20 samples, no error at exit 2: p = (1 - eps)^20; 2 errors at exit 1.
    arrays = ladder([[1.0, 0.0]] * 2 + [[0.0, 0.0]] * 18)
    assert pick(arrays, "ltt", 0.10, delta=0.1).never_exits  # 0.9^20 = 0.122
    found = pick(arrays, "ltt", 0.11, delta=0.1)  # 0.89^20 = 0.097
    assert found.thresholds == (0.5, 0.5)
    assert found.p_value == pytest.approx(0.89**20)
    assert found.bound == pytest.approx(1 - 0.1 ** (1 / 20))  # the smallest epsilon: (1 - eps)^20 = 0.1
    bold = pick(arrays, "ltt", 0.3, delta=0.1)  # Binomial(20, 0.3) <= 2 is 0.0355
    assert bold.thresholds == (0.2, 0.2)
    assert bold.p_value == pytest.approx(0.0355, abs=1e-4)


def test_testing_stops_at_the_first_failure() -> None:
    arrays = ladder([[0.0, 1.0]] * 50)  # exit 2 always wrong, exit 1 always right
    for method in ("ucb", "ltt", "crc"):
        assert pick(arrays, method, 0.2, delta=0.1).never_exits
    assert pick(arrays, "naive", 0.2).thresholds == (0.2, 0.2)


def test_ucb_agrees_with_the_bound() -> None:
    generator = np.random.default_rng(1)
    arrays = ladder((generator.random((200, 2)) < [0.2, 0.05]).astype(float).tolist())
    found = pick(arrays, "ucb", 0.12, delta=0.1)
    assert found.thresholds == (0.5, 0.5)
    assert found.bound is not None
    assert found.empirical_risk < found.bound < 0.12
    # The choice changes exactly where epsilon passes the bound.
    assert pick(arrays, "ucb", found.bound * (1 - 1e-9), delta=0.1).never_exits
    assert not pick(arrays, "ucb", found.bound * (1 + 1e-9), delta=0.1).never_exits


def test_negative_gaps_count_as_zero_except_for_naive() -> None:
    confidence, losses, family = ladder([[0.0, 0.0]] * 100)
    losses[:50, 2] = 1.0  # half of the samples improve by exiting
    losses[50:60, :2] = 1.0  # a tenth gets worse
    found = {m: pick((confidence, losses, family), m, 0.05, delta=0.1) for m in ("naive", "crc", "ucb", "ltt")}
    assert found["naive"].empirical_risk == pytest.approx(-0.4)
    assert [guarantee.never_exits for guarantee in found.values()] == [False, True, True, True]


def test_brier_gap() -> None:
    arrays = ladder([[1.0, 0.1]] * 400)
    for method in ("crc", "ucb", "ltt"):
        found = pick(arrays, method, 0.3, delta=0.1, loss="brier")
        assert found.thresholds == (0.5, 0.5)
        assert found.empirical_risk == pytest.approx(0.1)
        assert found.bound is not None
        assert 0.1 < found.bound <= 0.3
    assert pick(ladder([[1.0, 0.1]] * 5), "crc", 0.3, loss="brier").never_exits  # B / (n + 1) = 1/3 alone is too much


def test_guarantee_travels_as_json() -> None:
    arrays = ladder([[1.0, 0.0]] * 2 + [[0.0, 0.0]] * 48)
    for method in ("naive", "crc", "ucb", "ltt"):
        for epsilon in (0.001, 0.2):
            found = pick(arrays, method, epsilon, delta=0.1)
            again = Guarantee.from_json(json.loads(to_json(found.to_json())), "plan.json")
            assert again == found
            assert found.statement.endswith(".")
    assert "With probability at least 0.9" in found.statement
    assert "negative gaps counted as 0" in found.statement
    assert "No member" in pick(arrays, "ltt", 0.001, delta=0.1).statement
    assert "nothing is promised" in pick(arrays, "naive", 0.2).statement
    with pytest.raises(MaqeeError, match=r"plan\.json: n: Field required"):
        Guarantee.from_json({k: v for k, v in found.to_json().items() if k != "n"}, "plan.json")
    with pytest.raises(MaqeeError, match=r"plan\.json: method"):
        Guarantee.from_json({**found.to_json(), "method": "hope"}, "plan.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "Epsilon"),
        ({"epsilon": 1.0}, "Epsilon"),
        ({"epsilon": math.nan}, "Epsilon"),
        ({"delta": 0.0}, "Delta"),
        ({"delta": 1.0}, "Delta"),
        ({"delta": None}, "needs delta"),
        ({"method": "ucp"}, "did you mean ucb"),
        ({"loss": "brie"}, "did you mean brier"),
        ({"confidence": np.zeros(4)}, r"\(samples, exits\)"),
        ({"confidence": np.full((4, 2), math.nan)}, "without NaN"),
        ({"confidence": np.zeros((0, 2))}, r"\(samples, exits\)"),
        ({"losses": np.zeros((4, 2))}, r"must be of shape \(4, 3\)"),
        ({"losses": np.full((4, 3), math.nan)}, "without NaN"),
        ({"losses": np.full((4, 3), 1.5)}, "from 0 to 1"),
        ({"losses": np.full((4, 3), -0.5)}, "from 0 to 1"),
        ({"family": np.zeros((3, 3))}, r"\(members, 2 exits\)"),
        ({"family": np.ones((3, 2))}, "must never exit"),
        ({"family": [[NEVER, NEVER], [0.1, 0.1], [0.2, 0.2]]}, "from safe to bold"),
        ({"family": [[NEVER, NEVER], [math.nan, 0.1]]}, "without NaN"),
    ],
)
def test_wrong_requests(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "confidence": np.zeros((4, 2)),
        "losses": np.zeros((4, 3)),
        "family": shared_family(2, steps=2),
        "method": "ucb",
        "loss": "zero-one",
        "epsilon": 0.1,
        "delta": 0.1,
    }
    with pytest.raises(MaqeeError, match=message):
        control(**(good | change))


def test_wrong_families_and_losses() -> None:
    with pytest.raises(MaqeeError, match="at least one exit"):
        shared_family(0)
    with pytest.raises(MaqeeError, match="at least 1, not 0"):
        shared_family(1, steps=0)
    with pytest.raises(MaqeeError, match="one number from 0 up"):
        offset_family((0.5, math.nan))
    with pytest.raises(MaqeeError, match="at least one sample"):
        betting_bound([], 0.1)
    with pytest.raises(MaqeeError, match="clip gaps"):
        risk_p_value([-0.5], 0.1)


@given(st.data())
@settings(max_examples=50)
def test_chosen_policy_is_a_member_and_within_its_bound(data: st.DataObject) -> None:
    n, exits = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 4))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    confidence, losses = generator.random((n, exits)), 2 * generator.random((n, exits + 1)) ** 4
    family = offset_family(generator.random(exits).tolist(), steps=10)
    epsilon = data.draw(st.floats(0.05, 1.9))
    for method in ("naive", "crc", "ucb", "ltt"):
        found = control(confidence, losses, family, method=method, loss="brier", epsilon=epsilon, delta=0.2)
        assert list(found.thresholds) in family.tolist()
        assert found.empirical_gap <= found.empirical_risk + 1e-12
        if found.bound is not None:
            assert found.empirical_risk <= found.bound + 1e-12
            assert found.bound <= epsilon + 1e-9


# --- the promises, by simulation -------------------------------------------------------------------------------------

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
