"""RepQ: the change of scale by hand and in exact arithmetic, and which grids go where."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maqee.models import load_backbone
from maqee.quant import Bits, QuantSettings, quantize
from maqee.quant.coded import GridModule
from maqee.quant.grids import LogSqrt2Grid, UniformGrid
from maqee.quant.methods.common import by_channel, fit_input, reparameterize
from maqee.quant.ranges import quantile_grid
from tests.helpers import max_difference, randomize
from tests.quant.makers import layer_behind

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_by_hand() -> None:
    """s = (1, 3), z = (0, 3): s~ = 2, z~ = 1.5, r1 = (1/2, 3/2), s r2 = (-1.5, 4.5).

    gamma' = gamma / r1 = (2, 2/3); beta' = (beta + s r2) / r1 = (-3, 3); W' = W r1 = (0.5, 3);
    c' = c - W (s r2) = 1 - (-1.5 + 9) = -6.5.
    """
    norm, inner = nn.LayerNorm(2), nn.Linear(2, 1)
    with torch.no_grad():
        inner.weight.copy_(torch.tensor([[1.0, 2.0]]))
        inner.bias.fill_(1.0)
    layer = layer_behind(norm, inner)
    layer.set_input(GridModule(UniformGrid(4, torch.tensor([1.0, 3.0]), torch.tensor([0.0, 3.0]))))
    reparameterize(layer, norm, integer_zeros=False)
    assert layer.input is not None
    grid = layer.input.grid
    assert isinstance(grid, UniformGrid)
    assert (float(grid.scale), float(grid.zero)) == (2.0, 1.5)
    torch.testing.assert_close(norm.weight.data, torch.tensor([2.0, 2 / 3]))
    torch.testing.assert_close(norm.bias.data, torch.tensor([-3.0, 3.0]))
    torch.testing.assert_close(inner.weight.data, torch.tensor([[0.5, 3.0]]))
    torch.testing.assert_close(inner.bias.data, torch.tensor([-6.5]))


@settings(max_examples=40)
@given(
    width=st.integers(1, 12), bits=st.integers(2, 8), bias=st.booleans(), integer=st.booleans(), seed=st.integers(0, 99)
)
def test_the_float_function_stays_the_same(width: int, bits: int, bias: bool, integer: bool, seed: int) -> None:
    torch.manual_seed(seed)
    norm, inner = nn.LayerNorm(width).double(), nn.Linear(width, 3, bias=bias).double()
    x = torch.randn(20, width).double()
    with torch.no_grad():
        norm.weight.copy_(torch.rand(width) + 0.5)
        norm.bias.copy_(torch.randn(width))
        before = inner(norm(x))
        layer = layer_behind(norm, inner)
        fit_input(layer, norm(x), bits, channels=True)
        assert layer.input is not None
        channels = layer.input.grid
        reparameterize(layer, norm, integer)
        common = layer.input.grid
        assert isinstance(channels, UniformGrid)
        assert isinstance(common, UniformGrid)
        torch.testing.assert_close(inner(norm(x)), before)
        assert inner.bias is not None
        torch.testing.assert_close(common.scale, channels.scale.mean())
        mean = channels.zero.mean()
        assert float(common.zero) == float(mean.round() if integer else mean)


def test_one_grid_afterwards_is_the_channels_grids_before() -> None:
    """With whole zero points the shift is whole too: the same codes, so the same rounded function."""
    torch.manual_seed(5)
    norm, inner, x = nn.LayerNorm(16).double(), nn.Linear(16, 8).double(), torch.randn(50, 16).double()
    with torch.no_grad():
        norm.weight.copy_(torch.rand(16) * 3 + 0.2)
        norm.bias.copy_(torch.randn(16))
        layer = layer_behind(norm, inner)
        fit_input(layer, norm(x), 4, channels=True)
        assert layer.input is not None
        grid = layer.input.grid
        before = inner(grid(norm(x)))
        unclipped = grid.covers(norm(x)).all(dim=1)
        reparameterize(layer, norm, integer_zeros=True)
        after = inner(layer.input.grid(norm(x)))
    assert int(unclipped.sum()) > 10
    torch.testing.assert_close(after[unclipped], before[unclipped])


@pytest.mark.parametrize("integer", [True, False])
@pytest.mark.parametrize("family", ["test-vit", "test-deit", "test-dinov2", "test-swin"])
def test_the_whole_network_stays_the_same_in_float(family: str, integer: bool) -> None:
    model = randomize(load_backbone(family))
    quantized = quantize(model, IMAGES, "repq", QuantSettings(integer_zeros=integer))
    with torch.no_grad(), quantized.in_float():
        assert max_difference(quantized.model(IMAGES), model(IMAGES)) < 1e-4


def test_which_grids_go_where() -> None:
    quantized = quantize(randomize(load_backbone("test-swin")), IMAGES, "repq", QuantSettings(classifier=Bits(4, 4)))
    for name, layer in quantized.layers.items():
        assert layer.input is not None
        grid = layer.input.grid
        assert isinstance(grid, UniformGrid)
        assert grid.scale.ndim == grid.zero.ndim == 0, name  # one for all channels, norm or no norm
        assert float(grid.zero).is_integer()
        state = layer.state()
        assert state is not None
        assert state.scale.shape == (layer.rows.shape[0], 1)
    for attend in quantized.attends.values():
        grids = {name: module.grid for name, module in attend.all_grids().items()}
        assert {name for name, grid in grids.items() if isinstance(grid, LogSqrt2Grid)} == {"p"}
    merge = quantized.layers["merges.3.reduction"]
    assert merge.inner.bias is not None  # it had none: the shift made one


def test_the_releases_zero_points_are_means() -> None:
    quantized = quantize(randomize(load_backbone("test-vit")), IMAGES, "repq", QuantSettings(integer_zeros=False))
    zeros = []
    for layer in quantized.layers.values():
        assert layer.input is not None
        grid = layer.input.grid
        assert isinstance(grid, UniformGrid)
        zeros.append((quantized.norm_before(layer.name) is not None, float(grid.zero).is_integer()))
    assert all(whole for fed, whole in zeros if not fed)
    assert not all(whole for fed, whole in zeros if fed)


def test_weights_are_fitted_again_after_the_change_of_scale() -> None:
    quantized = quantize(randomize(load_backbone("test-vit")), IMAGES, "repq", QuantSettings(widths=(3, 6)))
    for layer in quantized.layers.values():
        rows: Tensor = layer.rows.detach()
        for bits in (3, 4, 6):
            layer.set_bits(bits)
            state = layer.state()
            assert state is not None
            torch.testing.assert_close(state.values(), quantile_grid(rows, bits)(rows))


def test_channels_are_rows() -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    assert by_channel(x).tolist() == [x[..., channel].flatten().tolist() for channel in range(4)]
