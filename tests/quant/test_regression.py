"""Ridge regression and rounding with compensation, against loops over explicit matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from maqee.quant import refinement
from maqee.quant.grids import UniformGrid, grid_from_range
from maqee.quant.ranges import minmax_grid
from maqee.quant.refinement import refine_rounding
from maqee.quant.regression import (
    Moments,
    Ridge,
    columns_of,
    halves,
    missing_output,
    ridge_update,
    round_and_compensate,
)

Matrix = NDArray[np.float64]


def inputs(rows: int, width: int, seed: int) -> Tensor:
    """Columns that go along with each other and are not centred."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    mix = torch.randn(width, width, generator=generator, dtype=torch.float64) / width**0.5
    return x @ mix + 0.5 * torch.randn(width, generator=generator, dtype=torch.float64)


def weights(out: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed + 1000)
    both = torch.randn(out, width + 1, generator=generator, dtype=torch.float64)
    return both[:, :-1], both[:, -1]


def with_ones(x: Tensor) -> Matrix:
    return np.hstack([x.numpy(), np.ones((len(x), 1))])


def updated(x: Tensor, rounded: Tensor, weight: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """The first step from rows."""
    ridge = Ridge(Moments.of(rounded).gram, lam)
    return ridge_update(ridge, missing_output(x, rounded, weight), weight.dtype)


def compensated(
    x: Tensor, weight: Tensor, bias: Tensor, grids: list[UniformGrid], lam: float, refine: bool = True
) -> list[tuple[Tensor, Tensor]]:
    """The second step from rows."""
    moments = Moments.of(x)
    steps = halves(moments, Ridge(moments.gram, lam), weight.dtype, refine)
    return round_and_compensate(steps, weight, bias, grids)


def slow_refinement(weight: Matrix, steps: Matrix, zeros: Matrix, top: int, moment: Matrix) -> Matrix:
    """One row: flip the entry with the steepest slope, as the authors' program does, by trying."""

    def error_of(whole: Matrix) -> Matrix:
        return (np.clip(whole + zeros, 0, top) - zeros) * steps - weight

    floor, ceil = error_of(np.floor(weight / steps)), error_of(np.ceil(weight / steps))
    error = error_of(np.round(weight / steps))
    for _ in range(100):
        slope = 2 * moment @ error
        candidates = [index for index in range(len(error)) if error[index] * slope[index] > 0]
        if not candidates:
            break
        chosen = max(candidates, key=lambda index: abs(slope[index]))
        wanted = error[chosen] - slope[chosen]
        tried = error.copy()
        nearer_ceil = abs(wanted - ceil[chosen]) <= abs(wanted - floor[chosen])
        tried[chosen] = ceil[chosen] if nearer_ceil else floor[chosen]
        if tried @ moment @ tried > error @ moment @ error or tried[chosen] == error[chosen]:
            break
        error = tried
    return error


def slow_compensation(
    x: Tensor, weight: Tensor, bias: Tensor, grid: UniformGrid, lam: float, refine: bool
) -> tuple[Matrix, Matrix]:
    """Rounded weights and bias: half of what is left at a time, every row on its own, inverses and all."""
    columns, work = with_ones(x), np.hstack([weight.numpy(), bias.numpy()[:, None]])
    steps = np.broadcast_to(grid.scale.numpy(), weight.shape)
    zeros = np.broadcast_to(grid.zero.numpy(), weight.shape)
    fixed, total = 0, work.shape[1]
    while total - fixed > 1:
        now = list(range(fixed, fixed + (total - fixed) // 2))
        later = list(range(now[-1] + 1, total))
        one, two = columns[:, now], columns[:, later]
        mean = one.mean(axis=0)
        moment = np.outer(mean, mean) + np.atleast_2d(np.cov(one.T))
        repair = np.linalg.inv(two.T @ two + lam * np.eye(len(later))) @ two.T @ one
        for row in range(len(work)):
            old, step, zero = work[row, now], steps[row, now], zeros[row, now]
            if refine:
                error = slow_refinement(old, step, zero, grid.top, moment)
            else:
                error = (np.clip(np.round(old / step) + zero, 0, grid.top) - zero) * step - old
            work[row, now] = old + error
            work[row, later] -= repair @ error
        fixed = later[0]
    return work[:, :-1], work[:, -1]


@settings(max_examples=25)
@given(
    rows=st.integers(3, 30),
    width=st.integers(1, 8),
    out=st.integers(1, 5),
    lam=st.floats(0.01, 100),
    seed=st.integers(0, 999),
)
def test_ridge_update_is_the_direct_formula(rows: int, width: int, out: int, lam: float, seed: int) -> None:
    x = inputs(rows, width, seed)
    rounded = (4 * x).round() / 4
    weight, bias = weights(out, width, seed)
    a, both = with_ones(rounded), np.hstack([weight.numpy(), bias.numpy()[:, None]])
    missing = with_ones(x) @ both.T - a @ both.T
    delta = np.linalg.inv(a.T @ a + lam * np.eye(width + 1)) @ a.T @ missing
    weight_change, bias_change = updated(x, rounded, weight, lam)
    np.testing.assert_allclose(weight_change, delta[:-1].T, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(bias_change, delta[-1], rtol=1e-7, atol=1e-9)


def test_ridge_update_by_hand() -> None:
    """One column, rows x = (1.5, 2.5) rounded to (1, 3), W = 2, lam = 0: Delta solves two equations exactly.

    Missing are 2 (0.5, -0.5) = (1, -1); with w + b = 1 and 3 w + b = -1: w = -1, b = 2.
    """
    x, rounded = torch.tensor([[1.5], [2.5]]).double(), torch.tensor([[1.0], [3.0]]).double()
    weight, bias = updated(x, rounded, torch.tensor([[2.0]]).double(), 0.0)
    assert float(weight) == pytest.approx(-1.0)
    assert float(bias) == pytest.approx(2.0)


def test_no_error_needs_no_update() -> None:
    x = inputs(20, 4, 0)
    weight, bias = updated(x, x, weights(3, 4, 0)[0], 1.0)
    assert not weight.any()
    assert not bias.any()


def test_an_update_lowers_the_error_of_the_output() -> None:
    x = inputs(200, 6, 1)
    rounded = x.round()
    weight, _ = weights(4, 6, 1)
    change, shift = updated(x, rounded, weight, 0.1)
    before = (rounded - x) @ weight.t()
    after = rounded @ (weight + change).t() + shift - x @ weight.t()
    assert float(after.square().mean()) < 0.95 * float(before.square().mean())


@pytest.mark.parametrize("columns", [slice(0, 5), slice(1, 2), slice(2, 6)], ids=str)
def test_second_moment(columns: slice) -> None:
    x = inputs(40, 5, 2)
    part = with_ones(x)[:, columns]
    mean = part.mean(axis=0)
    expected = np.outer(mean, mean) + np.atleast_2d(np.cov(part.T))
    np.testing.assert_allclose(Moments.of(x).second_moment(columns), expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=30)
@given(bits=st.integers(2, 8), rows=st.integers(1, 40), width=st.integers(1, 9), zero=st.integers(-300, 300))
def test_moments_of_codes_are_those_of_values(bits: int, rows: int, width: int, zero: int) -> None:
    codes = torch.randint(0, 2**bits, (rows, width), generator=torch.Generator().manual_seed(rows)).float()
    grid = UniformGrid(bits, torch.tensor(0.37), torch.tensor(float(zero)))
    found = Moments.of_codes(codes, grid)
    values = (codes.double() - zero) * grid.scale.double()
    assert found.rows == rows
    torch.testing.assert_close(found.gram, Moments.of(values).gram, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_solving_leaves_the_matrix_alone(dtype: torch.dtype) -> None:
    gram, right = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=dtype), torch.tensor([[1.0], [2.0]]).double()
    found = Ridge(gram, 1.0).solve(right)
    assert gram.tolist() == [[2.0, 1.0], [1.0, 3.0]]
    torch.testing.assert_close((gram.double() + torch.eye(2).double()) @ found, right)


@pytest.mark.parametrize(("first", "middle"), [(0, 1), (0, 4), (2, 5), (6, 7)])
def test_repairs_come_from_the_factor_of_the_whole(first: int, middle: int) -> None:
    gram = Moments.of(inputs(30, 7, 3)).gram  # eight columns
    now, later = slice(first, middle), slice(middle, 8)
    expected = torch.linalg.solve(gram[later, later] + 2.5 * torch.eye(8 - middle).double(), gram[later, now])
    torch.testing.assert_close(Ridge(gram, 2.5).repair(now, later), expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=30)
@given(
    width=st.integers(1, 11),
    bits=st.integers(2, 4),
    refine=st.booleans(),
    spread=st.booleans(),
    lam=st.sampled_from([0.1, 5.0]),
    seed=st.integers(0, 999),
)
def test_rounding_and_compensation_is_the_slow_one(
    width: int, bits: int, refine: bool, spread: bool, lam: float, seed: int
) -> None:
    x = inputs(4 * width + 3, width, seed)
    weight, bias = weights(5, width, seed)
    grid = minmax_grid(weight, bits)
    if spread:  # a step of its own for every weight, as two groups of columns have
        factor = 1 + 0.3 * (torch.arange(width) % 3 == 0).double()
        grid = UniformGrid(bits, grid.scale * factor, grid.zero.expand(5, width))
    [(codes, shift)] = compensated(x, weight, bias, [grid], lam, refine)
    values, expected = slow_compensation(x, weight, bias, grid, lam, refine)
    np.testing.assert_allclose(grid.values(codes), values, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(shift, expected, rtol=1e-6, atol=1e-8)
    assert ((codes >= 0) & (codes <= grid.top) & (codes == codes.round())).all()


def test_compensation_lowers_the_error_of_the_output() -> None:
    x = inputs(300, 12, 4)
    weight, bias = weights(8, 12, 4)
    grid = minmax_grid(weight, 3)

    def error(rounded: Tensor, shift: Tensor) -> float:
        return float((x @ (rounded - weight).t() + shift - bias).square().mean())

    nearest = error(grid(weight), bias)
    plain, refined = (
        error(grid.values(codes), shift)
        for refine in (False, True)
        for codes, shift in compensated(x, weight, bias, [grid], 1.0, refine)
    )
    assert plain < 0.8 * nearest
    assert refined < 0.8 * nearest


@settings(max_examples=50)
@given(width=st.integers(1, 10), bits=st.integers(2, 5), scale=st.floats(0.2, 4), seed=st.integers(0, 999))
def test_refinement_never_raises_the_cost(width: int, bits: int, scale: float, seed: int) -> None:
    x = inputs(3 * width + 2, width, seed)
    weight = scale * weights(6, width, seed)[0]
    grid, moment = minmax_grid(weight, bits), Moments.of(x).second_moment(slice(0, width))
    nearest, refined = grid.codes(weight), refine_rounding(weight, grid, moment)

    def cost(codes: Tensor) -> Tensor:
        error = grid.values(codes) - weight
        return ((error @ moment) * error).sum(dim=1)

    assert (cost(refined) <= cost(nearest) * (1 + 1e-12) + 1e-15).all()
    assert ((grid.values(refined) - weight).abs() < grid.scale * (1 + 1e-9)).all()  # one of the two neighbours


def test_refinement_by_hand() -> None:
    """Two equal inputs, weights 0.4 and 0.4 on whole numbers: both go down, and 0.8 is missing from the sum.

    e = (-0.4, -0.4), M = all ones, g = (-1.6, -1.6). The first goes up: e = (0.6, -0.4), cost 0.04 instead of 0.64.
    Then g = (0.4, 0.4) agrees with the first entry only, and e - g = 0.2 is as far from 0.6 as from -0.2: it stays.
    """
    grid = UniformGrid(3, torch.ones(1, 1), torch.full((1, 1), 4.0))
    codes = refine_rounding(torch.tensor([[0.4, 0.4]]), grid, torch.ones(2, 2))
    assert codes.tolist() == [[5.0, 4.0]]


def test_independent_inputs_round_to_nearest() -> None:
    weight = weights(6, 5, 0)[0]
    grid = minmax_grid(weight, 3)
    assert torch.equal(refine_rounding(weight, grid, torch.eye(5).double()), grid.codes(weight))


def test_several_grids_get_what_each_would_get_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, and with more rows than are refined at a time."""
    monkeypatch.setattr(refinement, "CPU_BLOCK", 130 * 500)
    x, (weight, bias) = inputs(500, 130, 6).float(), weights(1100, 130, 6)
    weight, bias = weight.float(), bias.float()
    grids = [minmax_grid(weight, bits) for bits in (3, 4, 6)]
    moment = Moments.of(x).second_moment(slice(0, 130)).float()
    for grid in grids:
        in_parts = refine_rounding(weight, grid, moment)
        parts = [slice(first, first + 500) for first in (0, 500, 1000)]
        alone = [UniformGrid(grid.bits, grid.scale[rows], grid.zero[rows]) for rows in parts]
        found = [refine_rounding(weight[rows], one, moment) for rows, one in zip(parts, alone, strict=True)]
        assert torch.equal(in_parts, torch.cat(found))
        assert not torch.equal(in_parts, grid.codes(weight))
    for (codes, shift), grid in zip(compensated(x, weight, bias, grids, 10.0), grids, strict=True):
        [(codes_alone, shift_alone)] = compensated(x, weight, bias, [grid], 10.0)
        assert torch.equal(codes, codes_alone)
        assert torch.equal(shift, shift_alone)


@settings(max_examples=40)
@given(width=st.integers(1, 12), out=st.integers(1, 12), bits=st.integers(2, 5), seed=st.integers(0, 999))
def test_rows_that_are_done_wait_without_changing(width: int, out: int, bits: int, seed: int) -> None:
    """Every row on its own, by trying, gives the same: it does not matter which others are still at it."""
    x, weight = inputs(3 * width + 2, width, seed), weights(out, width, seed)[0]
    grid = grid_from_range(torch.tensor([[-1.5]]).double().expand(out, 1), torch.tensor([[1.2]]).double(), bits)
    moment = Moments.of(x).second_moment(slice(0, width))
    found = grid.values(refine_rounding(weight, grid, moment)) - weight
    zeros = grid.zero.expand(out, width).numpy()
    for row in range(out):
        steps = np.broadcast_to(grid.scale[row].numpy(), (width,))
        expected = slow_refinement(weight[row].numpy(), steps, zeros[row], grid.top, moment.numpy())
        np.testing.assert_allclose(found[row], expected, rtol=1e-9, atol=1e-12)


def test_columns_of_a_grid() -> None:
    one = UniformGrid(4, torch.ones(3, 1), torch.zeros(3, 1))
    assert columns_of(one, slice(1, 2)) is one
    each = UniformGrid(4, torch.arange(12.0).view(3, 4), torch.zeros(3, 4))
    assert columns_of(each, slice(1, 3)).scale.tolist() == [[1.0, 2.0], [5.0, 6.0], [9.0, 10.0]]
