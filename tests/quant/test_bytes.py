"""Sums of products of bytes are the sums that floats give, on whatever processor."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from maqee.quant import quantize
from maqee.quant.coded import GridModule, WeightState
from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.quant.layer import all_bytes, all_short
from maqee.quant.settings import QuantSettings
from maqee.quant.sums import BYTE, FEW, IN_BYTES, SHORT, SIMULATED
from tests.runtime.makers import small_model


def uniform(bits: int, zero: float) -> UniformGrid:
    return UniformGrid(bits, torch.tensor(0.1), torch.tensor(zero))


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (uniform(4, 6.0), 9),
        (uniform(8, 128.0), 128),
        (uniform(4, -9.0), 24),
        (uniform(4, 7.5), math.inf),
        (TwinGrid(8, torch.tensor(0.01), torch.tensor(0.08), signed=True), 127),
        (LogSqrt2Grid(4, torch.tensor(0.9)), 256),
    ],
    ids=["inside", "eight-bits", "zero-outside", "fraction", "twin", "logarithmic"],
)
def test_how_far_the_numbers_of_a_grid_reach(grid: Grid, expected: float) -> None:
    assert GridModule(grid).reach == expected


def test_a_grid_that_is_loaded_is_looked_at_anew() -> None:
    grid = GridModule(uniform(4, -5000.0))  # a narrow range far from zero
    found = [grid.reach]
    grid.load_state_dict({"scale": torch.tensor(0.1), "zero": torch.tensor(8.0)})
    assert [*found, grid.reach] == [5015, 8]


@pytest.mark.parametrize(("zero", "reach"), [(8, 8), (-3000, 3015)])
def test_how_far_weights_reach(zero: int, reach: int) -> None:
    state = WeightState(4, torch.zeros(2, 3), torch.ones(2, 1), torch.tensor([[8], [zero]]), None, None)
    assert state.reach == reach


def test_bytes_on_a_processor_and_tensor_cores_on_a_gpu() -> None:
    x = torch.zeros(1)
    for zero, fits in ((15.0 - BYTE, True), (14.0 - BYTE, False), (7.5, False)):
        assert all_bytes(x, GridModule(uniform(4, 8.0)), GridModule(uniform(4, zero))) is fits
    assert not all_bytes(x.to("meta"), GridModule(uniform(4, 8.0)))
    assert not all_short(x, GridModule(uniform(4, 8.0)))
    assert GridModule(uniform(4, float(SHORT))).reach <= SHORT < GridModule(uniform(4, SHORT + 1.0)).reach


def test_the_largest_sums_are_exact() -> None:
    """Sums of two products of such numbers are more than 16 bits hold, where some instructions stop."""
    left, right = torch.full((3, 40, 256), float(BYTE)), torch.full((256, 64), float(-BYTE))
    left[:, ::2] *= -1
    assert left[0].numel() * right.shape[1] >= FEW
    found = IN_BYTES.matmul(left, right, "x")
    assert torch.equal(found.to(torch.float32), SIMULATED.matmul(left, right, "x"))
    assert found[0, :2, 0].tolist() == [256 * BYTE**2, -256 * BYTE**2]


@pytest.mark.parametrize("method", ["rtn", "erq", "mptq"])
def test_a_network_gives_the_same_numbers(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Size] = []

    def in_plain_integers(left: Tensor, right: Tensor) -> Tensor:
        calls.append(left.shape)
        assert left.dtype == right.dtype == torch.int8
        return left.int() @ right.int()

    monkeypatch.setattr("maqee.quant.sums.FEW", 0)
    monkeypatch.setattr("maqee.quant.sums.multiplies_bytes", lambda: True)
    monkeypatch.setattr(torch, "_int_mm", in_plain_integers)
    torch.manual_seed(0)
    images = torch.randn(8, 1, 16, 16)
    quantized = quantize(small_model(), images, method, QuantSettings(weight_bits=4, act_bits=5))
    with torch.inference_mode():
        found = quantized.model(images)
        made = len(calls)
        monkeypatch.setattr("maqee.quant.layer.all_bytes", lambda *operands: False)
        expected = quantized.model(images)
    assert torch.equal(found, expected)
    assert made >= 4 * 4  # four linear layers in each of four blocks
    assert len(calls) == made
