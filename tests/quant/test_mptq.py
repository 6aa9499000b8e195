"""MPTQ: the shift and scale by hand and in exact arithmetic, the ratio of steps by trying them all."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from maqee.exits import add_exits
from maqee.models import load_backbone
from maqee.quant import QuantSettings, quantize
from maqee.quant.grids import TwinGrid, UniformGrid
from maqee.quant.methods.mptq import centred_grid, gelu_grid, probability_grid, shift_and_scale
from tests.helpers import max_difference, randomize
from tests.quant.makers import layer_behind, pictures


def test_shift_and_scale_by_hand() -> None:
    """Channels from 0 to 8 and from -3 to -1, columns with largest weights 1 and 4.

    b = (4, -2), half ranges (4, 1), s = (sqrt(4 / 1), sqrt(1 / 4)) = (2, 1/2).
    gamma' = (1/2, 2), beta' = (-b) / s = (-2, 4), W' = W s = ((2, 2), (-1, 1)), c' = c + W b = (1 - 4, -2 - 4).
    """
    norm, inner = nn.LayerNorm(2), nn.Linear(2, 2)
    with torch.no_grad():
        inner.weight.copy_(torch.tensor([[1.0, 4.0], [-0.5, 2.0]]))
        inner.bias.copy_(torch.tensor([1.0, 0.0]))
    shift_and_scale(layer_behind(norm, inner), norm, torch.tensor([0.0, -3.0]), torch.tensor([8.0, -1.0]))
    torch.testing.assert_close(norm.weight.data, torch.tensor([0.5, 2.0]))
    torch.testing.assert_close(norm.bias.data, torch.tensor([-2.0, 4.0]))
    torch.testing.assert_close(inner.weight.data, torch.tensor([[2.0, 2.0], [-1.0, 1.0]]))
    torch.testing.assert_close(inner.bias.data, torch.tensor([1.0 + 4.0 - 8.0, -2.0 - 4.0]))


@settings(max_examples=30)
@given(width=st.integers(1, 12), bias=st.booleans(), seed=st.integers(0, 99))
def test_the_float_function_stays_the_same(width: int, bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    norm, inner = nn.LayerNorm(width).double(), nn.Linear(width, 3, bias=bias).double()
    x = torch.randn(20, width).double()
    with torch.no_grad():
        norm.weight.copy_(torch.rand(width) + 0.5)
        norm.bias.copy_(3 * torch.randn(width))
        before, fed = inner(norm(x)), norm(x)
        shift_and_scale(layer_behind(norm, inner), norm, fed.amin(dim=0), fed.amax(dim=0))
        torch.testing.assert_close(inner(norm(x)), before)
        centred = norm(x)
    if width > 1:  # a single channel is always 0 behind its norm
        torch.testing.assert_close(centred.amin(dim=0), -centred.amax(dim=0))


@pytest.mark.parametrize("family", ["test-vit", "test-deit", "test-dinov2", "test-swin"])
def test_the_whole_network_stays_the_same_in_float(family: str) -> None:
    model = randomize(load_backbone(family))
    quantized = quantize(model, pictures(), "mptq")
    with torch.no_grad(), quantized.in_float():
        assert max_difference(quantized.model(pictures()), model(pictures())) < 1e-4


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
@pytest.mark.parametrize("spread", [0.3, 1.0, 8.0])
def test_the_ratio_is_the_best_of_all(bits: int, spread: float) -> None:
    x = F.gelu(spread * torch.randn(50, 40))
    found = gelu_grid(x, bits)
    step = -float(x.min()) / (2 ** (bits - 1) - 1)
    errors = []
    for m in range(bits + 5):  # every number to the nearest point of two lists
        below = torch.tensor([-step * code for code in range(2 ** (bits - 1))])
        above = torch.tensor([step * 2**m * code for code in range(2 ** (bits - 1))])
        near = [(x[..., None] - points).abs().amin(dim=-1).square() for points in (below, above)]
        errors.append(float(torch.where(x < 0, near[0], near[1]).mean()))
    assert float(found.coarse / found.fine) == pytest.approx(2 ** errors.index(min(errors)))
    assert float(found.fine) == pytest.approx(step, rel=1e-5)
    assert float((found(x) - x).square().mean()) == pytest.approx(min(errors), rel=1e-4)


def test_longer_tails_need_larger_ratios() -> None:
    x = torch.randn(2000)
    ratios = [float((grid := gelu_grid(F.gelu(s * x), 4)).coarse / grid.fine) for s in (0.5, 4.0, 32.0)]
    assert ratios[0] < ratios[1] < ratios[2]


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_probabilities_have_the_best_small_region(bits: int) -> None:
    p = torch.softmax(3 * torch.randn(30, 40), dim=-1)
    found = probability_grid(p, bits)
    top = 2 ** (bits - 1) - 1
    assert float(found.coarse) == pytest.approx(1 / top)
    errors = []
    for exponent in range(20):
        points = torch.tensor([c / top * f for f in (1.0, 2.0**-exponent) for c in range(top + 1)])
        errors.append(float((p[..., None] - points).abs().amin(dim=-1).square().mean()))
    assert float((found(p) - p).square().mean()) == pytest.approx(min(errors), rel=1e-3)
    assert not found.signed


def test_centred_grids_are_symmetric() -> None:
    x = torch.randn(3000)
    x[0] = 40.0  # an outlier that is better clipped
    grid = centred_grid(x, 4)
    assert float(grid.zero) == 8.0
    assert float(grid.scale) * 7 < 6.0
    ends = torch.quantile(x.abs(), torch.tensor([0.99, 0.995, 0.999, 0.9999, 0.99999]))
    errors = [float((UniformGrid(4, end / 7, torch.tensor(8.0))(x) - x).square().mean()) for end in ends]
    assert float((grid(x) - x).square().mean()) == pytest.approx(min(errors), rel=1e-5)


def test_which_grids_go_where() -> None:
    model = randomize(add_exits(load_backbone("test-swin"), "lgvit"))
    quantized = quantize(model, pictures(), "mptq", QuantSettings(widths=(3, 5)))
    kinds = {True: 0, False: 0}
    for name, layer in quantized.layers.items():
        assert layer.input is not None
        grid = layer.input.grid
        if quantized.norm_before(name) is not None:
            assert isinstance(grid, UniformGrid)
            assert float(grid.zero) == 8.0
        assert isinstance(grid, TwinGrid) == name.endswith("mlp.fc2"), name
        kinds[isinstance(grid, TwinGrid)] += 1
        assert {int(bits) for bits in layer.states} == set(quantized.widths(name))
    assert min(kinds.values()) > 0
    for attend in quantized.attends.values():
        grids = {operand: module.grid for operand, module in attend.all_grids().items()}
        assert {operand for operand, grid in grids.items() if isinstance(grid, TwinGrid)} == {"p"}
