"""Grids and weights as kernels read them: every sum is the one that is wanted."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maqee.quant.grids import LogSqrt2Grid, UniformGrid
from maqee.runtime.kernels.statements import state_linear, state_rows, state_sums
from maqee.runtime.kernels.stored import StoredGrid, StoredWeights, prepare_weights
from tests.runtime.kernels.makers import CASES, Case, make_layer


@pytest.mark.parametrize(
    ("zero", "top", "shift", "rest"),
    [(7, 15, 7, 0), (100, 255, 128, -28), (-3, 7, -3, 0), (-200, 15, -112, -88), (90, 127, 90, 0), (300, 15, 128, 172)],
    ids=["within", "byte", "below", "far below", "seven bits", "far above"],
)
def test_shift_by_hand(zero: int, top: int, shift: int, rest: int) -> None:
    grid = StoredGrid(0.5, zero, top)
    assert (grid.shift, grid.rest) == (shift, rest)
    assert -128 <= -grid.shift <= top - grid.shift <= 127
    assert (grid.low, grid.high) == (-zero, top - zero)


def test_only_grids_with_one_whole_zero_point_are_stored() -> None:
    step = torch.tensor(0.1)
    assert StoredGrid.of(UniformGrid(4, step, torch.tensor(3.0))) == (float(step), 3, 15)
    assert StoredGrid.of(UniformGrid(4, step, torch.tensor(3.5))) is None
    assert StoredGrid.of(UniformGrid(4, step.repeat(3), torch.zeros(3))) is None
    assert StoredGrid.of(LogSqrt2Grid(4, step)) is None


def stored(case: Case, inputs: int, outputs: int, seed: int = 0) -> StoredWeights:
    layer = make_layer(case, inputs, outputs, seed=seed)
    state = layer.state()
    assert state is not None
    assert layer.input is not None
    grid = StoredGrid.of(layer.input.grid)
    assert grid is not None
    weights = prepare_weights(state, grid)
    assert weights is not None
    return weights


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layer_from_stored_codes_is_the_layer(case: Case) -> None:
    layer, weights = make_layer(case, 70, 9), stored(case, 70, 9)
    x = 0.7 * torch.randn(11, 70)
    got, expected = state_linear(state_rows(x, weights), weights), layer(x)
    if case.common:  # one sum instead of two that are added up
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(got, expected)


@given(
    weights=st.integers(2, 8),
    inputs=st.integers(2, 8),
    zero=st.integers(-300, 300),
    grouped=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_sums_are_those_of_codes_less_zero_points(
    weights: int, inputs: int, zero: int, grouped: bool, seed: int
) -> None:
    case = Case(weights, inputs, zero, grouped)
    layer, prepared = make_layer(case, 21, 5, seed=seed), stored(case, 21, 5, seed)
    codes = torch.randint(0, 2**inputs, (4, 21), generator=torch.Generator().manual_seed(seed))
    state = layer.state()
    assert state is not None
    x = (codes - zero) * 0.1
    got = state_sums(state_rows(x, prepared), prepared)
    for number, sums in enumerate(got):
        columns = torch.ones(21, dtype=torch.bool) if state.group is None else state.group == number
        right = state.codes.long()[:, columns] - state.zero[:, number, None]
        assert torch.equal(sums, (codes - zero)[:, columns] @ right.t())
    largest = max(int(sums.abs().max()) for sums in got)
    assert largest < 2**22 or not prepared.small
    assert int(got[-1].abs().max()) < 2**15 or not prepared.short


def test_common_steps_make_one_group() -> None:
    layer, weights = make_layer(Case(4, 4, 7, grouped=True, common=True), 70, 9), stored(CASES[-1], 70, 9)
    assert (weights.groups, weights.split, weights.width) == (1, 128, 128)
    state = layer.state()
    assert state is not None
    numbers = weights.codes[:9, :70] * weights.scale[0, :9, None] / weights.grid.scale
    assert torch.allclose(numbers, state.values(), rtol=1e-5)


def test_padding_weighs_nothing() -> None:
    weights = stored(Case(4, 4, 7, grouped=True), 70, 9)
    assert weights.columns is not None
    assert weights.codes.shape == (128, 128)  # 56 columns of one group and 14 of the other, each padded to 64
    assert weights.split == 64
    assert not bool(weights.codes[:, weights.columns < 0].any())
    assert not bool(weights.codes[9:].any())
    assert sorted(weights.columns[weights.columns >= 0].tolist()) == list(range(70))


def test_sums_beyond_int32_are_refused() -> None:
    layer = make_layer(Case(8, 8, 0), 8, 2)
    state = layer.state()
    assert state is not None
    assert prepare_weights(state, StoredGrid(0.1, -4_000_000, 255)) is None


def test_outputs_as_shares_of_several_grids() -> None:
    weights = stored(Case(4, 4, 7), 64, 6)
    shares = weights.as_shares_of([StoredGrid(0.5, 2, 16), StoredGrid(0.25, 4, 8)])  # from -1 to 7, and from -1 to 1
    codes = torch.randint(-7, 8, (3, 64))
    from_lowest = state_linear(codes, weights) + 1
    expected = from_lowest / torch.tensor([8.0, 8.0, 8.0, 2.0, 2.0, 2.0])
    assert torch.allclose(state_linear(codes, shares), expected, rtol=1e-6, atol=1e-6)
