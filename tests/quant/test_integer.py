"""The integer reference: what is executed on codes is what was simulated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models.layers import TokenDepthwise
from maqee.quant import Bits, LogSqrt2Grid, QuantizedModel, TwinGrid, UniformGrid, methods
from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule, rounded_state
from maqee.quant.compare import compare, compare_layers
from maqee.quant.grids import Grid
from maqee.quant.integer import execute_integers
from maqee.quant.layer import QuantLayer
from maqee.quant.ranges import minmax_grid
from maqee.quant.sums import EXECUTED, SIMULATED, check_accumulator
from maqee.quant.terms import operand_terms
from tests.helpers import max_difference
from tests.quant.makers import (
    EVERYTHING,
    give_twin_grids,
    give_two_groups,
    let_learn,
    pictures,
    quantized,
    stop_learning,
    two_groups,
)

TOLERANCE = 1e-5  # relative, of every layer from the same input


def scalar(value: float) -> Tensor:
    return torch.tensor(value)


GRIDS: dict[str, Grid] = {
    "uniform": UniformGrid(4, scalar(0.13), scalar(6.0)),
    "uniform-8": UniformGrid(8, scalar(0.01), scalar(100.0)),
    "uniform-zero-outside": UniformGrid(4, scalar(0.1), scalar(-9.0)),
    "twin-signed": TwinGrid(4, scalar(0.02), scalar(0.16), signed=True),
    "twin-unsigned": TwinGrid(5, scalar(0.01), scalar(0.08), signed=False),
    **{f"log-{bits}": LogSqrt2Grid(bits, scalar(0.9)) for bits in range(2, 9)},
}


def assert_close(one: Tensor, other: Tensor) -> None:
    assert max_difference(one, other) <= TOLERANCE * float(other.abs().max())


# --- terms and sums ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRIDS)
@settings(max_examples=30)
@given(numbers=st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=20))
def test_terms_add_up_to_the_grid(name: str, numbers: list[float]) -> None:
    grid = GRIDS[name]
    x = torch.tensor(numbers).abs() if name.startswith(("log", "twin-unsigned")) else torch.tensor(numbers)
    terms = operand_terms(grid, x)
    assert all(torch.equal(term.codes, term.codes.round()) for term in terms)
    total = torch.stack([term.codes * term.step for term in terms]).sum(dim=0)
    assert torch.allclose(total, grid(x), rtol=1e-6, atol=1e-30)


def test_sums_in_int32_and_in_float_are_the_same_numbers() -> None:
    left, right = torch.randint(-15, 16, (7, 300)).float(), torch.randint(-15, 16, (300, 5)).float()
    expected = left.numpy().astype(np.int64) @ right.numpy().astype(np.int64)
    for sums in (EXECUTED, SIMULATED):
        assert np.array_equal(sums.matmul(left, right, "x").numpy(), expected)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(6, 4, 3, padding=1),
        nn.Conv2d(6, 4, 2, stride=2),
        nn.Conv2d(6, 12, (3, 1), padding=(1, 0), groups=3),
        nn.Conv2d(6, 6, 3, stride=(1, 2), padding=1, groups=6),
    ],
)
def test_convolution(conv: nn.Conv2d) -> None:
    codes = torch.randint(-15, 16, (2, 6, 5, 8)).float()
    weights = torch.randint(-7, 8, conv.weight.shape).float()
    executed = EXECUTED.convolve(codes, weights.flatten(1), conv, "x")
    expected = conv._conv_forward(codes, weights, None).permute(0, 2, 3, 1)
    assert torch.equal(executed, expected)
    assert torch.equal(SIMULATED.convolve(codes, weights.flatten(1), conv, "x"), expected)


def test_sums_that_int32_cannot_hold() -> None:
    assert check_accumulator(255, 255, 3072, "fc2") == 199_756_800
    with pytest.raises(MaqeeError, match=r"fc2: 33026 products .* more than int32 holds"):
        check_accumulator(255, 255, 33026, "fc2")
    with pytest.raises(MaqeeError, match="more than int32 holds"):
        EXECUTED.matmul(torch.full((1, 10), 2.0**14), torch.full((10, 1), 2.0**14), "fc2")


# --- single layers ----------------------------------------------------------------------------------------------------


def layer_of(inner: nn.Linear | nn.Conv2d, grid: Grid, bits: int = 4) -> QuantLayer:
    layer = QuantLayer(inner, "layer")
    rows = layer.rows.detach()
    layer.add_state(rounded_state(rows, minmax_grid(rows, bits), None, inner.bias))
    layer.set_bits(bits)
    layer.set_input(GridModule(grid))
    return layer


@pytest.mark.parametrize("name", GRIDS)
@torch.no_grad()
def test_linear(name: str) -> None:
    layer = layer_of(nn.Linear(40, 9), GRIDS[name])
    x = torch.randn(3, 5, 40)
    x = x.abs() if name.startswith(("log", "twin-unsigned")) else x
    simulated = layer(x)
    layer.executing = True
    assert_close(layer(x), simulated)
    assert_close(layer(x), layer.from_values(x))


@torch.no_grad()
def test_two_groups_against_plain_loops() -> None:
    layer = layer_of(nn.Linear(10, 3), GRIDS["uniform"])
    layer.add_state(two_groups(layer))
    state = layer.state()
    assert state is not None
    bias = layer.inner.bias
    assert state.group is not None
    assert bias is not None
    x = torch.randn(2, 10)
    codes = GRIDS["uniform"].codes(x)
    expected = torch.zeros(2, 3, dtype=torch.float64)
    for image in range(2):
        for out in range(3):
            sums = [0, 0]
            for column in range(10):
                group = int(state.group[column])
                weight = int(state.codes[out, column]) - int(state.zero[out, group])
                sums[group] += (int(codes[image, column]) - 6) * weight
            steps = [0.13 * float(state.scale[out, group]) for group in (0, 1)]
            expected[image, out] = sums[0] * steps[0] + sums[1] * steps[1] + float(bias[out])
    layer.executing = True
    assert_close(layer(x).double(), expected)


@torch.no_grad()
def test_depthwise_over_tokens() -> None:
    layer = layer_of(TokenDepthwise(6), GRIDS["uniform"])
    x = torch.randn(2, 12, 6)
    simulated = layer(x, (3, 4))
    layer.executing = True
    assert torch.equal(layer(x, (3, 4)), simulated)
    assert_close(simulated, layer.from_values(x, (3, 4)))


@pytest.mark.parametrize("probabilities", ["uniform", "uniform-8", "twin-unsigned", "log-2", "log-4", "log-6", "log-8"])
@torch.no_grad()
def test_attention(probabilities: str) -> None:
    attend = QuantAttend("attend")
    for operand in "qkv":
        attend.grids[operand] = GridModule(UniformGrid(4, scalar(0.3), scalar(7.0)))
    scale = scalar(1 / 15) if probabilities == "uniform" else scalar(1 / 255)
    uniform = UniformGrid(4 if probabilities == "uniform" else 8, scale, scalar(0.0))
    attend.grids["p"] = GridModule(uniform if probabilities.startswith("uniform") else GRIDS[probabilities])
    q, k, v, bias = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8), torch.randn(1, 3, 7, 7)
    p = attend.probabilities(q, k, bias)
    scores, mixed = attend.scores(q, k), attend.mix(p, v)
    attend.executing = True
    assert torch.equal(attend.scores(q, k), scores)
    assert_close(attend.mix(p, v), mixed)
    assert_close(attend.mix(p, v), attend.grids["p"](p) @ attend.grids["v"](v))


def test_probabilities_that_all_round_to_zero() -> None:
    attend = QuantAttend("attend")
    for operand in "qkv":
        attend.grids[operand] = GridModule(GRIDS["uniform"])
    attend.grids["p"] = GridModule(LogSqrt2Grid(2, scalar(1.0)))
    attend.executing = True
    assert torch.equal(attend(*torch.zeros(3, 1, 1, 9, 2)), torch.zeros(1, 1, 9, 2))


def test_gradients_do_not_change_the_numbers() -> None:
    layer = layer_of(nn.Linear(20, 4), GRIDS["uniform"])
    x = torch.randn(3, 20, requires_grad=True)
    y = layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x), y)
    y.sum().backward()
    assert x.grad is not None
    (expected,) = torch.autograd.grad(layer.from_values(x).sum(), x)
    assert torch.equal(x.grad, expected)


# --- whole models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rtn", "repq"])
@pytest.mark.parametrize(
    ("preset", "exits"),
    [
        ("test-vit", "lgvit"),
        ("test-vit", "cnn-project"),
        ("test-vit", "resmlp"),
        ("test-deit", "mixer"),
        ("test-deit", None),
        ("test-dinov2", "vit-ee"),
        ("test-swin", "lgvit"),
    ],
)
def test_models(preset: str, exits: str | None, method: str) -> None:
    found = compare(quantized(preset, method, exits, **EVERYTHING), pictures(), batch_size=2, layer_images=2)
    assert found.images == 4
    assert found.worst_layer <= TOLERANCE
    assert found.agreement == 1.0
    assert found.only_ties()
    assert found.first == ()  # sums of 4-bit codes are exact, so that there is nothing to tie


@pytest.mark.parametrize("method", methods.names())
def test_every_method(method: str) -> None:
    found = compare(quantized("test-vit", method), pictures(), layer_images=1)
    assert found.worst_layer <= TOLERANCE
    assert found.first == ()


@pytest.mark.parametrize("bits", [2, 3, 5, 6, 8])
def test_widths(bits: int) -> None:
    both = Bits(bits, bits)
    found = compare(quantized(weight_bits=bits, act_bits=bits, patch=both, classifier=both), pictures())
    assert found.worst_layer <= TOLERANCE
    assert found.only_ties()


@pytest.mark.parametrize("change", [give_two_groups, give_twin_grids])
def test_grids_of_other_methods(change: Callable[[QuantizedModel], None]) -> None:
    model = quantized(exits="vit-ee")
    change(model)
    found = compare(model, pictures())
    assert found.worst_layer <= TOLERANCE
    assert found.first == ()


@torch.no_grad()
def test_weight_only_layers_stay_float() -> None:
    model = quantized(overrides=(("fc1", Bits(4, None)), ("fc2", Bits(None, 4))))
    assert "blocks.0.mlp.fc1" not in compare_layers(model, pictures())
    simulated = model.model(pictures())
    with execute_integers(model):
        assert torch.equal(model.model(pictures()), simulated)


def test_a_difference_is_found_and_measured() -> None:
    """A simulation with something wrong in the middle: the report says where it begins, and that it is no tie."""
    model = quantized()
    layer = model.layers["blocks.2.mlp.fc1"]

    def disturb(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return output + 0.5 if layer.executing else output

    with_hook = layer.register_forward_hook(disturb)
    found = compare(model, pictures(), batch_size=3)
    with_hook.remove()
    assert {entry.where for entry in found.first} == {"blocks.2.mlp.fc2"}
    assert [entry.image for entry in found.first] == [0, 1, 2, 3]
    assert not found.only_ties()
    assert found.to_json()["images_with_a_differing_code"] == 4


def test_afterwards_the_model_is_simulated_again() -> None:
    model = quantized()
    with pytest.raises(RuntimeError, match="stop"), execute_integers(model):
        raise RuntimeError("stop")
    assert not any(layer.executing for layer in model.layers.values())


def test_what_cannot_be_executed() -> None:
    model = quantized(integer_zeros=False)
    with pytest.raises(MaqeeError, match=r"blocks\.0\.attn\.qkv has the zero point .* integer_zeros=True"):
        compare(model, pictures())
    model = quantized()
    layer = model.layers["blocks.1.mlp.fc1"]
    let_learn(layer)
    with pytest.raises(MaqeeError, match=r"blocks\.1\.mlp\.fc1 is learning"), execute_integers(model):
        pass
    stop_learning(layer)
    layer.set_input(GridModule(UniformGrid(4, torch.rand(32) + 1, torch.zeros(32))))
    with pytest.raises(MaqeeError, match="a grid for each channel"), execute_integers(model):
        pass
