"""Risk control: which policy is chosen, by hand; and that promises are kept, by simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maqee.apq.control.boldest import control
from maqee.apq.control.family import offset_family, policy_gaps
from maqee.apq.control.guarantee import Guarantee, Method
from maqee.errors import MaqeeError
from maqee.policy import NEVER


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
        "family": [[NEVER, NEVER], [1.0, 1.0], [0.5, 0.5], [0.0, 0.0]],
        "method": "ucb",
        "loss": "zero-one",
        "epsilon": 0.1,
        "delta": 0.1,
    }
    with pytest.raises(MaqeeError, match=message):
        control(**(good | change))


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
