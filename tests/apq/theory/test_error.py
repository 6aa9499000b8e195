"""Theorem 2: by hand, on random networks, and where the printed form fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq.theory.error import (
    BlockErrors,
    accumulated_bound,
    accumulated_error,
    measure_blocks,
    measure_expansion,
)
from maqee.errors import MaqeeError
from tests.apq.theory.makers import run_network


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
