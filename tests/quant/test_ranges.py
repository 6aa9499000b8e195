"""Ranges from data: quantiles as torch has them, the pair of least error, and data that no grid fits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.quant import squared_errors
from maqee.quant.grids import LogSqrt2Grid, UniformGrid, grid_from_range
from maqee.quant.ranges import (
    ERQ_WEIGHT_QUANTILES,
    REPQ_QUANTILES,
    check_finite,
    log_sqrt2_grid,
    log_sqrt2_grids,
    mean_error,
    minmax,
    minmax_grid,
    quantile_grid,
    quantile_grids,
    quantile_range,
)
from maqee.quant.squared_errors import log_errors, uniform_errors


@settings(max_examples=40)
@given(
    count=st.integers(1, 3000),
    rows=st.integers(1, 4),
    quantiles=st.sampled_from([REPQ_QUANTILES, ERQ_WEIGHT_QUANTILES, (0.75,), (1.0,), (0.5, 0.9)]),
    seed=st.integers(0, 1000),
)
def test_quantiles_agree_with_torch(count: int, rows: int, quantiles: tuple[float, ...], seed: int) -> None:
    x = torch.randn(rows, count, generator=torch.Generator().manual_seed(seed))
    lows, highs = quantile_range(x, quantiles)
    assert lows.shape == highs.shape == (len(quantiles), rows, 1)
    p = torch.tensor(quantiles)
    torch.testing.assert_close(highs[..., 0], torch.quantile(x, p, dim=1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lows[..., 0], torch.quantile(x, 1 - p, dim=1), rtol=1e-4, atol=1e-4)


def test_quantiles_by_hand() -> None:
    """0..10: the 0.95 quantile lies half way between the 9th and the 10th step."""
    lows, highs = quantile_range(torch.arange(11.0)[None], (0.95,))
    assert float(highs) == pytest.approx(9.5, abs=1e-5)
    assert float(lows) == pytest.approx(0.5, abs=1e-5)


def test_quantiles_of_more_numbers_than_torch_takes() -> None:
    """torch.quantile refuses more than 16 million; a ramp shows where the quantiles must be."""
    x = torch.arange(17_000_000, dtype=torch.float32)[None] / 17_000_000
    lows, highs = quantile_range(x, (0.99999,))
    assert float(highs) == pytest.approx(0.99999, abs=1e-6)
    assert float(lows) == pytest.approx(0.00001, abs=1e-6)


def test_minmax_clips_nothing() -> None:
    rows = torch.randn(5, 100)
    low, high = minmax(rows)
    assert low.shape == high.shape == (5, 1)
    grid = minmax_grid(rows, 4)
    assert ((grid(rows) - rows).abs() <= 0.5001 * grid.scale).all()


@settings(max_examples=20)
@given(bits=st.integers(2, 8), seed=st.integers(0, 50))
def test_the_pair_of_least_error_is_taken_row_by_row(bits: int, seed: int) -> None:
    rows = torch.randn(3, 5000, generator=torch.Generator().manual_seed(seed)) ** 3
    chosen = mean_error(quantile_grid(rows, bits), rows)
    by_hand = torch.stack(
        [
            (grid_from_range(row.quantile(1 - p), row.quantile(p), bits)(row) - row).square().mean()
            for row in rows
            for p in REPQ_QUANTILES
        ]
    ).view(3, -1)
    torch.testing.assert_close(chosen.float(), by_hand.amin(dim=1), rtol=1e-3, atol=1e-6)


def test_outliers_are_cut_off_where_that_pays() -> None:
    rows = torch.randn(1, 20000)
    rows[0, 0] = 12.0
    assert float(mean_error(quantile_grid(rows, 4), rows)) < 0.5 * float(mean_error(minmax_grid(rows, 4), rows))


@pytest.mark.parametrize("bits", range(2, 9))
def test_log_grid_takes_the_quantile_of_least_error(bits: int) -> None:
    rows = torch.softmax(4 * torch.randn(1, 300, 40), -1).reshape(1, -1)
    grid = log_sqrt2_grid(rows, bits)
    assert any(torch.isclose(grid.scale.squeeze(), rows.quantile(p), rtol=1e-4) for p in REPQ_QUANTILES)
    assert float(grid(torch.zeros(1))) == 0.0


def test_log_grid_of_nothing_but_zeros() -> None:
    rows = torch.zeros(1, 10)
    assert torch.equal(log_sqrt2_grid(rows, 4)(rows), rows)


@settings(max_examples=40)
@given(st.floats(-5, 5, width=32), st.integers(2, 8))
def test_constants(value: float, bits: int) -> None:
    rows = torch.full((2, 50), value)
    for grid in (minmax_grid(rows, bits), quantile_grid(rows, bits)):
        torch.testing.assert_close(grid(rows), rows)


def test_error_in_pieces_is_the_error_of_the_whole() -> None:
    rows = torch.randn(3, 1001)
    grid = minmax_grid(rows, 3)
    whole = (grid(rows) - rows).square().mean(dim=1)
    torch.testing.assert_close(mean_error(grid, rows, chunk=64).float(), whole)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_are_named(bad: float) -> None:
    x: Tensor = torch.ones(4, 4)
    x[1, 2] = bad
    with pytest.raises(MaqeeError, match=r"The weight of blocks\.3 holds 1 values that are not finite"):
        check_finite(x, "The weight of blocks.3")
    assert check_finite(torch.ones(2), "x").sum() == 2


@settings(max_examples=30)
@given(count=st.integers(1, 400), rows=st.integers(1, 5), seed=st.integers(0, 999))
def test_several_widths_get_what_each_would_get_alone(count: int, rows: int, seed: int) -> None:
    x = torch.randn(rows, count, generator=torch.Generator().manual_seed(seed)) ** 3
    for bits, grid in zip((3, 4, 8), quantile_grids(x, (3, 4, 8)), strict=True):
        alone = quantile_grid(x, bits)
        assert grid.bits == bits
        assert torch.equal(grid.scale, alone.scale)
        assert torch.equal(grid.zero, alone.zero)
    p = torch.softmax(x, dim=1)
    for bits, log_grid in zip((3, 4, 8), log_sqrt2_grids(p, (3, 4, 8)), strict=True):
        assert torch.equal(log_grid.scale, log_sqrt2_grid(p, bits).scale)


@pytest.mark.parametrize("shape", [(1, 200_000), (70, 1500), (3, 5)], ids=str)
def test_errors_of_many_candidates_are_those_of_each(shape: tuple[int, int]) -> None:
    rows = torch.rand(shape, generator=torch.Generator().manual_seed(3))
    rows[:, 0] = 0.0
    ends = torch.tensor([0.3, 0.8, 1.0])[:, None, None].expand(3, shape[0], 1)
    every = grid_from_range(-ends / 3, ends, 4)
    found = uniform_errors(rows, every) / shape[1]
    for number in range(3):
        plain = mean_error(UniformGrid(4, every.scale[number], every.zero[number]), rows)
        torch.testing.assert_close(found[number], plain, rtol=1e-5, atol=1e-9)
    logarithmic = log_errors(rows, ends, (2, 4)) / shape[1]
    for index, bits in enumerate((2, 4)):
        for number in range(3):
            plain = mean_error(LogSqrt2Grid(bits, ends[number]), rows)
            torch.testing.assert_close(logarithmic[index, number], plain, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_candidates_may_be_looked_at_together(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an accelerator does it. Small whole numbers, which are added without rounding."""
    rows = torch.arange(-30.0, 30.0).reshape(4, 15)
    steps = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])[:, None, None].expand(5, 4, 1)
    grids = UniformGrid(3, steps, torch.full_like(steps, 4.0))
    alone = uniform_errors(rows, grids)
    monkeypatch.setattr(squared_errors, "_at_once", lambda candidates, tile: count)
    assert torch.equal(uniform_errors(rows, grids), alone)
    assert alone[0, 0] == sum((number - 4) ** 2 for number in range(16, 31))  # all of it beyond the lower end, -4
