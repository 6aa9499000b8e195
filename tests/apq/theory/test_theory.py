"""The theorems on arrays: worked out by hand, and never violated on random data."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maqee.apq.theory.diagnosis import TAUS, Diagnosis, diagnose
from maqee.apq.theory.error import (
    BlockErrors,
    accumulated_bound,
    accumulated_error,
    measure_blocks,
    measure_expansion,
)
from maqee.apq.theory.ranks import rank_inversions
from maqee.errors import MaqeeError
from maqee.io import to_json
from maqee.policy import NEVER

# Four samples, two exits after blocks 2 and 4 of 6.
FLOAT = np.array([[0.9, 0.9], [0.5, 0.8], [0.75, 0.2], [0.1, 0.1]])
QUANTIZED = np.array([[0.85, 0.5], [0.75, 0.9], [0.5, 0.3], [0.1, 0.6]])
PHI = (0.7, 0.6)
BLOCKS = (2, 4, 6)


# --- Theorem 1 and its corollary -------------------------------------------------------------------------------------


def test_mis_exits_by_hand() -> None:
    found = diagnose(FLOAT, QUANTIZED, PHI, BLOCKS, taus=(0.0, 0.1, 0.22)).mis_exits
    # Decisions of exit 1: 1,0,1,0 and 1,1,0,0; of exit 2: 1,1,0,0 and 0,1,0,1.
    assert found.measured == (0.5, 0.5)
    # |Delta|: 0.2,0.2,0.05,0.6 and 0.3,0.2,0.4,0.5; |xi|: 0.05,0.25,0.25,0 and 0.4,0.1,0.1,0.5.
    assert found.boundary_mass == ((0.0, 0.25, 0.75), (0.0, 0.0, 0.25))
    assert found.tail == ((0.75, 0.5, 0.5), (1.0, 0.5, 0.5))
    assert found.bound == ((0.75, 0.75, 1.25), (1.0, 0.5, 0.75))
    assert found.crossing == (0.5, 0.5)
    assert found.best_taus == (0.0, 0.1)
    assert found.holds


def test_stopping_depth_by_hand() -> None:
    found = diagnose(FLOAT, QUANTIZED, PHI, BLOCKS).stopping_depth
    # Float exits 1, 2, 1, full depth; quantized 1, 1, full depth, 2.
    assert found.float_mean == (2 + 4 + 2 + 6) / 4
    assert found.quantized_mean == (2 + 2 + 6 + 4) / 4
    assert found.changed == 0.75
    assert found.changed_bound == 1.0  # four differing decisions, one of them of a sample that had left
    assert found.shift_bound == 5.0
    assert found.first_disagreement == (0.5, 0.25)
    assert found.tight_shift_bound == 0.5 * 4 + 0.25 * 2
    assert found.holds


def test_flips_by_hand() -> None:
    losses = np.array([[0.0, 0.0, 0.0], [3.0, 1.0, 0.0], [4.0, 9.0, 2.0], [0.0, 5.0, 1.0]])
    found = diagnose(FLOAT, QUANTIZED, PHI, BLOCKS, losses=losses).flips
    assert found.matrix == ((1, 0, 1), (1, 0, 0), (0, 1, 0))
    assert (found.premature, found.delayed) == (0.5, 0.25)
    assert found.premature_loss == pytest.approx(((3 - 1) + (5 - 1)) / 4)
    assert found.delayed_loss == pytest.approx((2 - 4) / 4)
    assert (found.premature_blocks, found.delayed_blocks) == ((-2 - 2) / 4, 4 / 4)
    assert diagnose(FLOAT, QUANTIZED, PHI, BLOCKS).flips.premature_loss is None


def test_a_tie_at_the_threshold_is_an_exit() -> None:
    # rho = phi exits, and the smallest step down does not: Delta = 0, so tau = 0 covers it.
    low = np.nextafter(0.7, 0)
    found = diagnose([[0.7]], [[low]], (0.7,), (1, 2), taus=(0.0,)).mis_exits
    assert found.measured == (1.0,)
    assert found.boundary_mass == ((1.0,),)
    assert found.holds


CONFIDENCES = st.integers(1, 12).flatmap(
    lambda n: st.integers(1, 4).flatmap(
        lambda exits: st.tuples(
            *[hnp.arrays(np.float32, (n, exits), elements=st.floats(0, 1, width=32))] * 2,
            hnp.arrays(np.float64, (exits,), elements=st.floats(0, 1) | st.just(NEVER)),
        )
    )
)


@given(CONFIDENCES, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_exit_bounds_hold_on_any_data(arrays: tuple[Any, Any, Any], taus: list[float]) -> None:
    before, after, phi = arrays
    exits = before.shape[1]
    found = diagnose(before, after, phi.tolist(), range(1, exits + 2), taus=[*taus, *TAUS])
    found.check()
    assert sum(map(sum, found.flips.matrix)) == found.n
    assert found.flips.premature + found.flips.delayed == pytest.approx(found.stopping_depth.changed)
    shift = found.stopping_depth.quantized_mean - found.stopping_depth.float_mean
    assert found.flips.premature_blocks + found.flips.delayed_blocks == pytest.approx(shift, abs=1e-12)


@given(CONFIDENCES)
def test_margins_near_rounding_do_not_break_the_bound(arrays: tuple[Any, Any, Any]) -> None:
    """Confidences a few units of the last place around the threshold, where differences are all rounding."""
    before, after, phi = arrays
    near = phi + np.round(8 * before.astype(float) - 4) * np.spacing(phi)
    far = phi + np.round(8 * after.astype(float) - 4) * np.spacing(phi)
    taus = [0.0, *(k * np.spacing(0.5) for k in range(5))]
    diagnose(near, far, phi.tolist(), range(1, len(phi) + 2), taus=taus).check()


# --- Theorem 2 -------------------------------------------------------------------------------------------------------


def test_accumulated_bound_by_hand() -> None:
    # eps = 1, 2, 3 and gamma_0..2 = 7, 5, 2: 1; 5 * 1 + 2 = 7; 2 * 7 + 3 = 17. gamma_0 only meets the input error.
    assert accumulated_bound([1, 2, 3], [7, 5, 2]).tolist() == [1, 7, 17]
    assert accumulated_bound([1, 2, 3], [7, 5, 2], input_error=1).tolist() == [8, 42, 87]


@given(st.data())
def test_recurrence_is_the_printed_sum_of_products(data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, 6))
    numbers = st.lists(st.floats(0, 3), min_size=depth, max_size=depth)
    eps, gamma = data.draw(numbers), data.draw(numbers)
    printed = [sum(eps[l] * math.prod(gamma[l + 1 : k]) for l in range(k)) for k in range(1, depth + 1)]  # noqa: E741
    np.testing.assert_allclose(accumulated_bound(eps, gamma), printed, atol=1e-9)


def test_expansion_by_hand() -> None:
    zero = np.zeros((3, 2))
    perturbed, output = np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 10.0], [0.0, 0.5], [0.0, 0.0]])
    assert measure_expansion(zero, perturbed, zero, output).tolist() == [2.0, 0.5, 0.0]


def run_network(n: int, depth: int, seed: int, step: float, width: int = 4) -> tuple[list[Any], list[Any], list[Any]]:
    """A small residual network and its rounded twin: float, quantized and crossed states."""
    generator = np.random.default_rng(seed)
    weights = generator.normal(0, 0.6, (depth, width, width))

    def block(state: np.ndarray, index: int) -> np.ndarray:
        return state + np.tanh(state @ weights[index])

    exact = [generator.normal(size=(n, width))]
    rounded, crossed = [exact[0].copy()], []
    for index in range(depth):
        exact.append(block(exact[-1], index))
        crossed.append(block(rounded[-1], index))
        rounded.append(np.round(crossed[-1] / step) * step)
    return exact, rounded, crossed


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 1000), st.sampled_from([1e-6, 0.1, 1.0]))
def test_accumulated_bound_holds_on_any_network(n: int, depth: int, seed: int, step: float) -> None:
    errors = measure_blocks(*run_network(n, depth, seed, step))
    stops = np.random.default_rng(seed).integers(1, depth + 1, n)
    found = accumulated_error(errors, stops)
    assert found.holds
    assert found.stop_error <= found.stop_bound * (1 + 1e-6) + 1e-9
    for error, bound, uniform in zip(found.mean_error, found.mean_bound, found.uniform_bound, strict=True):
        assert error <= bound * (1 + 1e-6) + 1e-9
        assert bound <= uniform * (1 + 1e-6) + 1e-9


def test_mean_constants_violate_the_printed_bound() -> None:
    """Why eps and gamma are kept for each sample: the sample with the large error is the one that is stretched."""
    errors = BlockErrors(
        total=np.array([[0.0, 2.0, 20.0], [0.0, 0.0, 0.0]]),
        local=np.array([[2.0, 0.0], [0.0, 0.0]]),
        expansion=np.array([[0.0, 10.0], [0.0, 0.0]]),
    )
    found = accumulated_error(errors, np.array([2, 2]))
    assert found.stop_error == found.stop_bound == 10.0
    means = accumulated_bound(errors.local.mean(axis=0), errors.expansion.mean(axis=0))
    assert means[-1] == 5.0 < found.mean_error[-1]


def test_local_error_at_the_float_input_violates_the_bound() -> None:
    """Why the local error is taken at the quantized input: otherwise the two pieces of the error do not meet."""
    # Float block 2 is the identity. Quantization takes 0.5 to 0 in block 1, and in block 2 it subtracts 0.4 from 0, but
    # would have subtracted only 0.1 from 0.5.
    exact, rounded = [0.0, 0.5, 0.5], [0.0, 0.0, -0.4]
    errors = BlockErrors(
        total=np.abs(np.array([exact]) - rounded),
        local=np.array([[0.5, 0.1]]),  # at the float input; at the quantized one it is 0.4
        expansion=np.array([[0.0, 1.0]]),
    )
    assert accumulated_error(errors, np.array([2])).violations == 1


def test_unequal_outputs_of_equal_inputs_are_local() -> None:
    exact, rounded, crossed = run_network(3, 2, 0, 0.1)
    crossed[0] = crossed[0] + 0.01  # block 1 is given equal inputs
    errors = measure_blocks(exact, rounded, crossed)
    assert (errors.expansion[:, 0] == 0).all()
    assert accumulated_error(errors, np.array([1, 2, 2])).holds


def test_blocks_may_change_the_shape() -> None:
    states = [np.zeros((2, 4, 3)), np.ones((2, 2, 6)), np.ones((2, 5))]
    errors = measure_blocks(states, states, states[1:])
    assert errors.total.shape == (2, 3)
    assert errors.local.shape == (2, 2)


# --- Theorem 3 -------------------------------------------------------------------------------------------------------


def test_rank_inversions_by_hand() -> None:
    # u S = 2, 2.4, 1.2: block 3 is statically first but weighted last, block 2 is second and weighted first.
    found = rank_inversions([2.0, 3.0, 4.0], [1.0, 0.8, 0.3])
    assert found.pairs == ((3, 1), (3, 2))
    assert found.share == pytest.approx(2 / 3)
    # One bit: 1.2 instead of 2.4; two: 1.2 + 2.4 instead of 4.4; three: all.
    assert found.shortfall == pytest.approx((0.5, 0.8 / 4.4, 0.0))


def test_an_inversion_need_not_matter() -> None:
    found = rank_inversions([9.0, 1.0, 2.0], [1.0, 1.0, 0.1])
    assert found.pairs == ((3, 2),)
    assert found.shortfall[0] == 0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), min_size=1, max_size=8))
def test_only_deeper_layers_can_lose_their_rank(rows: list[tuple[float, float]]) -> None:
    static = [row[0] for row in rows]
    reach = sorted((row[1] for row in rows), reverse=True)
    found = rank_inversions(static, reach)
    assert all(i > j for i, j in found.pairs)
    assert all(0 <= value <= 1 for value in found.shortfall)
    assert found.shortfall[-1] == pytest.approx(0, abs=1e-9)
    if not found.pairs:
        assert max(found.shortfall) == pytest.approx(0, abs=1e-9)
    assert rank_inversions(static, [1.0] * len(static)).pairs == ()


# --- the diagnosis ---------------------------------------------------------------------------------------------------


def full_diagnosis() -> Diagnosis:
    return diagnose(
        FLOAT,
        QUANTIZED,
        PHI,
        BLOCKS,
        losses=np.zeros((4, 3)),
        block_errors=measure_blocks(*run_network(4, 6, 0, 0.1)),
        sensitivity=[1, 1, 1, 2, 3, 4],
    )


def test_diagnosis_is_json() -> None:
    found = full_diagnosis()
    found.check()
    values = json.loads(to_json(found.to_json()))
    assert values == found.to_json()
    assert values["utilization"] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    assert values["rank_inversions"]["pairs"] == [[5, 1], [5, 2], [5, 4]]  # u S = 1, 1, 0.5, 1, 0.75, 1
    assert json.loads(to_json(diagnose(FLOAT, QUANTIZED, PHI, BLOCKS).to_json()))["accumulated_error"] is None


def test_check_names_what_is_violated() -> None:
    found = full_diagnosis()
    broken = dataclasses.replace(found, mis_exits=dataclasses.replace(found.mis_exits, measured=(0.5, 0.9)))
    with pytest.raises(MaqeeError, match=r"violate Theorem 1 \(mis-exits\), which"):
        broken.check()
    broken = dataclasses.replace(found, stopping_depth=dataclasses.replace(found.stopping_depth, quantized_mean=6.1))
    with pytest.raises(MaqeeError, match="corollary"):
        broken.check()
    assert found.accumulated_error is not None
    broken = dataclasses.replace(found, accumulated_error=dataclasses.replace(found.accumulated_error, violations=1))
    with pytest.raises(MaqeeError, match="Theorem 2"):
        broken.check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"float_confidence": FLOAT[:3]}, "must both be"),
        ({"float_confidence": FLOAT[0], "quantized_confidence": FLOAT[0]}, "must both be"),
        ({"float_confidence": np.full((4, 2), math.nan)}, "without NaN"),
        ({"thresholds": (0.5,)}, "one threshold for each of the 2 exits"),
        ({"thresholds": (0.5, math.inf)}, "one threshold for each of the 2 exits"),
        ({"exit_blocks": (2, 4)}, "2 rising block numbers and the depth"),
        ({"exit_blocks": (4, 2, 6)}, "2 rising block numbers and the depth"),
        ({"exit_blocks": (0, 2, 6)}, "2 rising block numbers and the depth"),
        ({"taus": ()}, "tau"),
        ({"taus": (-0.1,)}, "tau"),
        ({"losses": np.zeros((4, 2))}, r"shape \(4, 3\)"),
        ({"losses": np.full((4, 3), math.inf)}, r"shape \(4, 3\)"),
        ({"block_errors": BlockErrors(np.zeros((4, 3)), np.zeros((4, 2)), np.zeros((4, 2)))}, "4 samples and 6 blocks"),
        ({"sensitivity": [1.0, 2.0]}, "one sensitivity"),
        ({"sensitivity": [1, 1, 1, 1, 1, -1]}, "negative"),
    ],
)
def test_wrong_arrays(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "float_confidence": FLOAT,
        "quantized_confidence": QUANTIZED,
        "thresholds": PHI,
        "exit_blocks": BLOCKS,
    }
    with pytest.raises(MaqeeError, match=message):
        diagnose(**(good | change))


def test_wrong_states() -> None:
    state = np.zeros((2, 3))
    with pytest.raises(MaqeeError, match="give 2 float and quantized states"):
        measure_blocks([state], [state, state], [state])
    with pytest.raises(MaqeeError, match="of one shape"):
        measure_expansion(state, state, state, np.zeros((2, 4)))
    with pytest.raises(MaqeeError, match=r"\(n, L\) local"):
        BlockErrors(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(MaqeeError, match="finite"):
        BlockErrors(np.full((2, 2), math.nan), np.zeros((2, 1)), np.zeros((2, 1)))
    with pytest.raises(MaqeeError, match="one block from 1 to 1"):
        accumulated_error(BlockErrors(np.zeros((2, 2)), np.zeros((2, 1)), np.zeros((2, 1))), np.array([0, 1]))
    with pytest.raises(MaqeeError, match="from 0 to 1"):
        rank_inversions([1.0], [1.5])
