"""Grids as maths: codes in range, nearest points, exact zeros, worked examples, straight-through gradients."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.quant.grids import (
    Grid,
    LogSqrt2Grid,
    TwinGrid,
    UniformGrid,
    check_bits,
    grid_from_range,
    straight_through,
    symmetric_grid,
)

BITS = st.integers(2, 8)
NUMBERS = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=40).map(torch.tensor)
PROBABILITIES = st.lists(st.floats(0, 1, width=32), min_size=2, max_size=40).map(torch.tensor)
STEPS = st.floats(1e-4, 10)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float32)


def fitted(x: Tensor, bits: int) -> UniformGrid:
    return grid_from_range(x.min(), x.max(), bits)


def assert_codes(grid: Grid, x: Tensor, largest: int) -> None:
    codes = grid.codes(x)
    assert (codes == codes.round()).all()
    assert codes.min() >= 0
    assert codes.max() <= largest
    assert torch.equal(grid(x), grid.values(codes))


def assert_idempotent(grid: Grid, x: Tensor) -> None:
    once = grid(x)
    torch.testing.assert_close(grid(once), once, rtol=1e-5, atol=1e-9)


# --- uniform ---------------------------------------------------------------------------------------------------------


def test_uniform_by_hand() -> None:
    """Range -1..2 in 2 bits: s = 1, z = 1; the points are -1, 0, 1, 2."""
    grid = grid_from_range(number(-1.0), number(2.0), 2)
    assert (float(grid.scale), float(grid.zero)) == (1.0, 1.0)
    x = torch.tensor([-5.0, -0.6, 0.4, 0.6, 1.4, 9.0])
    assert grid.codes(x).tolist() == [0, 0, 1, 2, 2, 3]
    assert grid(x).tolist() == [-1, -1, 0, 1, 1, 2]
    assert grid.covers(x).tolist() == [False, True, True, True, True, False]


@settings(max_examples=40)
@given(NUMBERS, BITS)
def test_uniform_properties(x: Tensor, bits: int) -> None:
    grid = fitted(x, bits)
    assert_codes(grid, x, 2**bits - 1)
    assert_idempotent(grid, x)
    slack = 1e-5 * float(x.abs().max())  # of float32 arithmetic
    assert ((grid(x) - x).abs() <= 0.5 * grid.scale + slack).all()
    far = torch.tensor([-1e6, 1e6])
    assert grid.codes(far).tolist() == [0, 2**bits - 1]
    assert not grid.covers(far).any()


@settings(max_examples=40)
@given(NUMBERS, BITS)
def test_zero_is_a_point_of_every_range_around_it(x: Tensor, bits: int) -> None:
    grid = grid_from_range(x.min().clamp(max=0), x.max().clamp(min=0), bits)
    assert float(grid(number(0.0))) == 0.0
    assert 0 <= float(grid.zero) <= 2**bits - 1
    assert float(grid.zero).is_integer()


@settings(max_examples=40)
@given(st.floats(-100, 100, width=32), BITS)
def test_a_constant_is_a_point_of_its_grid(value: float, bits: int) -> None:
    constant = torch.full((5,), value)
    grid = fitted(constant, bits)
    assert float(grid.scale) > 0
    torch.testing.assert_close(grid(constant), constant)
    assert float(grid(number(0.0))) == 0.0


@pytest.mark.parametrize("value", [0.5, -0.5, 30.0])
def test_a_constant_with_rounding_errors_is_one_too(value: float) -> None:
    """Else its zero point is beyond all integers that are kept."""
    nearly = torch.full((6,), value)
    nearly[2] = torch.nextafter(nearly[2], torch.tensor(1e9))
    grid = fitted(nearly, 8)
    assert abs(float(grid.zero)) <= 255
    torch.testing.assert_close(grid(nearly), nearly)


def test_the_smallest_numbers_there_are() -> None:
    grid = fitted(torch.tensor([0.0, 1e-45]), 8)
    assert torch.isfinite(grid(torch.tensor([0.0, 1e-45, 1.0]))).all()


@settings(max_examples=40)
@given(st.lists(NUMBERS, min_size=1, max_size=4), BITS)
def test_channels_do_not_know_each_other(rows: list[Tensor], bits: int) -> None:
    length = min(len(row) for row in rows)
    x = torch.stack([row[:length] for row in rows])
    together = grid_from_range(x.amin(1, keepdim=True), x.amax(1, keepdim=True), bits)
    for index, row in enumerate(x):
        assert torch.equal(together(x)[index], fitted(row, bits)(row))


@settings(max_examples=40)
@given(STEPS, BITS, NUMBERS)
def test_symmetric(largest: float, bits: int, x: Tensor) -> None:
    grid = symmetric_grid(number(largest), bits)
    half = 2 ** (bits - 1)
    assert float(grid.zero) == half
    assert float(grid.scale) == pytest.approx(largest / (half - 1))
    assert float(grid(number(0.0))) == 0.0
    assert_codes(grid, x, 2**bits - 1)
    assert_idempotent(grid, x)
    inside = x.clamp(-largest, largest)
    assert ((grid(inside) - inside).abs() <= 0.5 * grid.scale * (1 + 1e-4)).all()
    torch.testing.assert_close(grid(-inside), -grid(inside), rtol=1e-5, atol=float(grid.scale))


def test_symmetric_of_nothing_but_zeros() -> None:
    assert symmetric_grid(torch.zeros(3), 4)(torch.zeros(3)).tolist() == [0, 0, 0]


# --- logarithmic -----------------------------------------------------------------------------------------------------


def test_log_by_hand() -> None:
    """Scale 1, 2 bits: 1, 0.7071, 0.5, 0.3536, and 0 for what is rounded to code 4 or beyond."""
    grid = LogSqrt2Grid(2, number(1.0))
    x = torch.tensor([2.0, 1.0, 0.75, 0.5, 0.3536, 0.25, 0.0])
    assert grid.codes(x).tolist() == [0, 0, 1, 2, 3, 4, 4]
    torch.testing.assert_close(grid(x), torch.tensor([1, 1, 0.70711, 0.5, 0.35355, 0, 0]), rtol=1e-4, atol=1e-6)
    assert grid.covers(x).tolist() == [False, True, True, True, True, False, False]


@settings(max_examples=40)
@given(PROBABILITIES, BITS, st.floats(0.01, 1))
def test_log_properties(x: Tensor, bits: int, scale: float) -> None:
    grid = LogSqrt2Grid(bits, number(scale))
    assert_codes(grid, x, 2**bits)
    assert_idempotent(grid, x)
    assert float(grid(number(0.0))) == 0.0
    covered = grid.covers(x) & (x > 1e-30)
    ratio = torch.log2(grid(x)[covered] / x[covered]).abs()
    assert (ratio <= 0.25 + 1e-4).all()  # half a step of sqrt(2), in the exponent


# --- twin ------------------------------------------------------------------------------------------------------------


def test_twin_for_gelu_by_hand() -> None:
    """3 bits: fine points 0, -0.05, -0.1, -0.15 below zero, coarse ones 0, 0.8, 1.6, 2.4 above."""
    grid = TwinGrid(3, number(0.05), number(0.8), signed=True)
    x = torch.tensor([-0.17, -0.06, -0.01, 0.0, 0.5, 1.3, 7.0])
    assert grid.codes(x).tolist() == [3, 1, 0, 4, 5, 6, 7]
    torch.testing.assert_close(grid(x), torch.tensor([-0.15, -0.05, 0, 0, 0.8, 1.6, 2.4]))
    assert grid.covers(x).tolist() == [True, True, True, True, True, True, False]


def test_twin_for_probabilities_by_hand() -> None:
    """3 bits: fine points 0, 1/16, 1/8, 3/16, coarse ones 0, 1/2, 1, 3/2; each number goes to the nearest."""
    grid = TwinGrid(3, number(1 / 16), number(1 / 2), signed=False)
    x = torch.tensor([0.0, 0.07, 0.22, 0.3, 0.36, 0.7, 0.8, 2.0])
    assert grid(x).tolist() == [0, 0.0625, 0.1875, 0.1875, 0.5, 0.5, 1.0, 1.5]
    assert grid.codes(x).tolist() == [0, 1, 3, 3, 5, 5, 6, 7]


@settings(max_examples=40)
@given(NUMBERS, BITS, st.floats(1e-3, 0.1), st.integers(0, 8))
def test_twin_signed_properties(x: Tensor, bits: int, fine: float, shift: int) -> None:
    grid = TwinGrid(bits, number(fine), number(fine * 2**shift), signed=True)
    assert_codes(grid, x, 2**bits - 1)
    assert_idempotent(grid, x)
    assert float(grid(number(0.0))) == 0.0
    step = torch.where(x < 0, grid.fine, grid.coarse)
    assert ((grid(x) - x).abs() <= 0.5001 * step)[grid.covers(x)].all()
    assert (grid(x) * x >= 0).all()


@settings(max_examples=40)
@given(PROBABILITIES, BITS, st.integers(0, 8))
def test_twin_unsigned_properties(x: Tensor, bits: int, shift: int) -> None:
    levels = 2 ** (bits - 1)
    coarse = 1 / max(1, levels - 1)
    grid = TwinGrid(bits, number(coarse / 2**shift), number(coarse), signed=False)
    assert_codes(grid, x, 2**bits - 1)
    assert_idempotent(grid, x)
    points = grid.values(torch.arange(2**bits).float())
    nearest = (x[:, None] - points).abs().amin(dim=1)
    torch.testing.assert_close((grid(x) - x).abs(), nearest, rtol=1e-4, atol=1e-6)
    fine = x <= float(grid.fine) * (levels - 1)
    assert ((grid(x) - x).abs() <= 0.5001 * torch.where(fine, grid.fine, grid.coarse)).all()


# --- all of them -----------------------------------------------------------------------------------------------------


def example(kind: str, bits: int) -> tuple[Tensor, Grid]:
    """Numbers of the sort a grid is for, and the grid that holds them all."""
    generator = torch.Generator().manual_seed(0)
    noise, levels = torch.randn(20000, generator=generator), 2 ** (bits - 1) - 1
    if kind == "minmax":
        return noise, fitted(noise, bits)
    if kind == "symmetric":
        return noise, symmetric_grid(noise.abs().max(), bits)
    if kind == "gelu":
        x = torch.nn.functional.gelu(noise)
        return x, TwinGrid(bits, number(0.17 / levels), x.max() / levels, signed=True)
    shares = torch.softmax(noise.view(400, 50), -1).flatten()
    if kind == "log":
        return shares, LogSqrt2Grid(bits, shares.max())
    return shares, TwinGrid(bits, shares.median() * 4 / levels, shares.max() / levels, signed=False)


@pytest.mark.parametrize("kind", ["minmax", "symmetric", "log", "gelu", "probabilities"])
def test_more_bits_mean_less_error(kind: str) -> None:
    errors = [float((grid(x) - x).square().mean()) for x, grid in (example(kind, bits) for bits in range(2, 9))]
    if kind == "log":  # more bits reach further down, they are no finer: the error falls to a floor
        assert all(more <= less * (1 + 1e-6) for less, more in itertools.pairwise(errors))
        assert errors[0] > 1.5 * errors[-1]
    else:
        assert all(more < 0.6 * less for less, more in itertools.pairwise(errors))


@pytest.mark.parametrize("bits", [1, 9, 0, -4, 4.0, "4", None])
def test_only_two_to_eight_bits(bits: object) -> None:
    with pytest.raises(MaqeeError, match="2 to 8 bits"):
        check_bits(bits)  # type: ignore[arg-type]


# --- gradients -------------------------------------------------------------------------------------------------------


def moved(grid: Grid, x: Tensor, step: Tensor) -> Tensor:
    """How far the output moves, in steps, when the input moves by exactly one: the finite difference."""
    return (grid(x + step) - grid(x)) / step


def gradient(grid: Grid, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    y = straight_through(grid, x)
    torch.testing.assert_close(y.detach(), grid(x.detach()), rtol=1e-6, atol=1e-7)
    y.sum().backward()
    assert x.grad is not None
    return x.grad


@settings(max_examples=40)
@given(bits=BITS, low=st.floats(-3, -0.5), high=st.floats(0.5, 3), offset=st.floats(-0.4, 0.4))
def test_uniform_gradient_is_the_difference_over_one_step(bits: int, low: float, high: float, offset: float) -> None:
    grid = grid_from_range(number(low), number(high), bits)
    steps = torch.arange(-4, 2**bits + 4).float() - float(grid.zero)
    x = (steps + offset) * grid.scale  # at the same distance from every rounding point
    inside = grid.covers(x) & grid.covers(x + grid.scale)
    outside = ~grid.covers(x) & ~grid.covers(x + grid.scale)
    found = gradient(grid, x)
    difference = moved(grid, x, grid.scale)
    torch.testing.assert_close(difference[inside], torch.ones_like(x)[inside], rtol=1e-3, atol=1e-3)
    assert (found[inside] == 1).all()
    assert (difference[outside] == 0).all()
    assert (found[outside] == 0).all()


def test_twin_gradient_is_the_difference_over_one_step() -> None:
    grid = TwinGrid(4, number(0.02), number(0.5), signed=True)
    below, above = -0.02 * torch.arange(2, 8) + 0.005, 0.5 * torch.arange(0, 7) + 0.1
    for x, step in ((below, grid.fine), (above, grid.coarse)):
        torch.testing.assert_close(moved(grid, x, step), torch.ones_like(x), rtol=1e-4, atol=1e-4)
        assert (gradient(grid, x) == 1).all()
    clipped = torch.tensor([-0.5, 9.0])
    assert (moved(grid, clipped, grid.fine) == 0).all()
    assert (gradient(grid, clipped) == 0).all()


def test_log_gradient_is_the_factor_of_one_step() -> None:
    """A factor of sqrt(2) moves the output by the same factor: the chord has the slope y/x, nearly 1."""
    grid = LogSqrt2Grid(3, number(0.9))
    x = 0.9 * 2 ** (-torch.arange(1, 7) / 2)
    slope = (grid(x * math.sqrt(2)) - grid(x)) / (x * math.sqrt(2) - x)
    torch.testing.assert_close(slope, torch.ones_like(x), rtol=1e-4, atol=1e-4)
    assert (gradient(grid, x) == 1).all()
    outside = torch.tensor([0.0, 1e-9, 3.0])
    assert (gradient(grid, outside) == 0).all()


def test_no_gradient_no_detour() -> None:
    x = torch.randn(10)
    grid = fitted(x, 4)
    assert torch.equal(straight_through(grid, x), grid(x))
    with torch.no_grad():
        assert not straight_through(grid, x.requires_grad_()).requires_grad
