"""ERQ on miniatures: every layer is what its two formulas give, and the outputs are nearer than RepQ's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.exits import add_exits
from maqee.models import load_backbone
from maqee.quant import Bits, QuantizedModel, QuantSettings, quantize
from maqee.quant.grids import UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.quant.methods.erq import LAMBDA, PATCH_FACTOR, input_rows, outlier_columns
from maqee.quant.ranges import ERQ_WEIGHT_QUANTILES, quantile_grid
from maqee.quant.regression import Moments, Ridge, halves, round_and_compensate
from tests.helpers import max_difference, randomize
from tests.quant.makers import pictures

pytestmark = pytest.mark.slow

IMAGES = pictures(32)


def inputs_of(quantized: QuantizedModel) -> dict[str, Tensor]:
    """What the full-precision model feeds every layer."""
    seen: dict[str, Tensor] = {}
    with quantized.in_float(), quantized.observing(lambda layer, x: seen.update({layer.name: x}), None):
        quantized.run_everything(IMAGES)
    return seen


def first_step(model: nn.Module, layer: QuantLayer, x: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Aqer, written out: what weights and bias become, from explicit matrices in double precision."""
    inner = model.get_submodule(layer.name)
    assert isinstance(inner, nn.Linear)
    assert layer.input is not None
    rows, bias = inner.weight.detach().double(), inner.bias.detach().double()
    exact, rounded = input_rows(layer, x).double(), input_rows(layer, layer.input(x)).double()
    a = torch.cat([rounded, torch.ones(len(rounded), 1).double()], dim=1)
    missing = (exact - rounded) @ rows.t()
    delta = torch.linalg.inv(a.t() @ a + lam * torch.eye(a.shape[1]).double()) @ a.t() @ missing
    return rows + delta[:-1].t(), bias + delta[-1]


def second_step(x: Tensor, rows: Tensor, bias: Tensor, grid: UniformGrid, lam: float, refine: bool) -> list[Tensor]:
    """Wqer: codes and bias."""
    moments = Moments.of(x)
    steps = halves(moments, Ridge(moments.gram, lam), rows.dtype, refine)
    return list(round_and_compensate(steps, rows, bias, [grid])[0])


def output_error(quantized: QuantizedModel, model: nn.Module) -> float:
    with torch.no_grad():
        wanted = model(IMAGES)
        return float((quantized.model(IMAGES) - wanted).square().mean() / wanted.square().mean())


@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize(("family", "act_bits"), [("test-vit", 4), ("test-vit", 8), ("test-swin", 8)])
def test_outputs_are_nearer_than_those_of_repq(family: str, act_bits: int, bits: int) -> None:
    model = randomize(load_backbone(family), std=0.2)
    settings = QuantSettings(weight_bits=bits, act_bits=act_bits)
    errors = {name: output_error(quantize(model, IMAGES, name, settings), model) for name in ("repq", "erq")}
    assert errors["erq"] < 0.9 * errors["repq"]


def test_both_steps_of_the_first_version() -> None:
    """Latent weights are those after Aqer; codes and bias of every width are Wqer's on top."""
    model = randomize(load_backbone("test-vit"), std=0.2)
    quantized = quantize(model, IMAGES, "erq-2024", QuantSettings(widths=(3,)))
    fresh = quantize(model, IMAGES, "erq-2024", QuantSettings(widths=(3,)))
    for name, layer in fresh.layers.items():  # give the float model back, to see what it feeds
        layer.inner.load_state_dict(model.get_submodule(name).state_dict())
    seen = inputs_of(fresh)
    for name, layer in quantized.layers.items():
        rows, bias = first_step(model, layer, seen[name], LAMBDA)
        torch.testing.assert_close(layer.rows.detach().double(), rows, rtol=1e-3, atol=1e-4)
        assert layer.input is not None
        assert layer.inner.bias is not None
        torch.testing.assert_close(layer.inner.bias.detach().double(), bias, rtol=1e-3, atol=1e-4)
        rounded = input_rows(layer, layer.input(seen[name]))
        for bits in (3, 4):
            latent = layer.rows.detach()
            grid = quantile_grid(latent, bits, ERQ_WEIGHT_QUANTILES)
            codes, shift = second_step(rounded, latent, layer.inner.bias.detach(), grid, LAMBDA, refine=True)
            layer.set_bits(bits)
            state = layer.state()
            assert state is not None
            assert state.group is None
            torch.testing.assert_close(state.values(), grid.values(codes))
            assert state.bias is not None
            torch.testing.assert_close(state.bias, shift, rtol=1e-4, atol=1e-5)


def test_the_first_version_leaves_norms_alone() -> None:
    model = randomize(load_backbone("test-vit"))
    quantized = quantize(model, IMAGES, "erq-2024")
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm):
            assert torch.equal(quantized.model.get_submodule(name).weight, module.weight)  # type: ignore[arg-type]
    assert all(state.group is None for layer in quantized.layers.values() if (state := layer.state()))


def test_two_groups_behind_norms_only() -> None:
    model = randomize(add_exits(load_backbone("test-vit"), "mlp", positions=(2,)))
    quantized = quantize(model, IMAGES, "erq")
    for name, layer in quantized.layers.items():
        state = layer.state()
        assert state is not None
        if name.endswith((".qkv", ".fc1")):
            assert state.group is not None, name
            assert torch.equal(state.group, outlier_columns(layer.rows.detach()))
            assert int(state.group.sum()) == len(layer.rows) // 20
            assert state.scale.shape == (len(layer.rows), 2)
            for index in (0, 1):
                part = quantile_grid(layer.rows.detach()[:, state.group == index], 4, ERQ_WEIGHT_QUANTILES)
                torch.testing.assert_close(state.scale[:, index], part.scale[:, 0])
        else:
            assert state.group is None, name
        assert layer.input is not None
        grid = layer.input.grid
        assert isinstance(grid, UniformGrid)
        assert grid.scale.ndim == 0  # one for all channels


def test_patch_and_classifier() -> None:
    """The patch embedding has float inputs in the release: no first step, ten times the penalty, no refinement."""
    model = randomize(load_backbone("test-vit"))
    settings = QuantSettings(patch=Bits(4, None), classifier=Bits(4, 4))
    quantized = quantize(model, IMAGES, "erq", settings)
    patch = quantized.layers["embedding.patch"]
    source = model.get_submodule("embedding.patch")
    assert torch.equal(patch.inner.weight, source.weight)  # type: ignore[arg-type]
    rows, x = patch.rows.detach(), input_rows(patch, IMAGES)
    grid = quantile_grid(rows, 4, ERQ_WEIGHT_QUANTILES)
    bias = source.bias.detach()  # type: ignore[operator]
    codes, _ = second_step(x, rows, bias, grid, PATCH_FACTOR * LAMBDA, refine=False)
    state = patch.state()
    assert state is not None
    torch.testing.assert_close(state.values(), grid.values(codes))
    assert quantized.layers["head.linear"].bits == 4


@pytest.mark.parametrize("family", ["test-deit", "test-dinov2", "test-swin"])
def test_eight_bits_are_nearly_float(family: str) -> None:
    model = randomize(load_backbone(family))
    quantized = quantize(model, IMAGES, "erq", QuantSettings(weight_bits=8, act_bits=8))
    assert output_error(quantized, model) < 1e-2


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(4, 4, 0), (3, 1, 1), (3, 2, 0)])
def test_rows_of_a_convolution(kernel: int, stride: int, padding: int) -> None:
    inner = nn.Conv2d(3, 5, kernel, stride, padding)
    layer, x = QuantLayer(inner, "conv"), torch.randn(2, 3, 12, 12)
    rows = input_rows(layer, x)
    expected = F.conv2d(x, inner.weight, inner.bias, stride, padding)
    assert inner.bias is not None
    product = rows @ layer.rows.t() + inner.bias
    assert max_difference(product, expected.permute(0, 2, 3, 1).reshape(-1, 5)) < 1e-5


def test_depthwise_convolutions_are_rounded_plainly() -> None:
    """With one input for each output there is nobody to make up for an error."""
    model = randomize(add_exits(load_backbone("test-vit"), "lgvit"))
    quantized = quantize(model, IMAGES, "erq")
    found = [layer for layer in quantized.layers.values() if getattr(layer.inner, "groups", 1) > 1]
    assert found
    for layer in found:
        rows, state = layer.rows.detach(), layer.state()
        assert state is not None
        torch.testing.assert_close(state.values(), quantile_grid(rows, 4, ERQ_WEIGHT_QUANTILES)(rows))
