"""Quantized layers: what they compute, how widths are switched, and gradients through them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models.layers import Attend, TokenDepthwise
from maqee.quant.attend import QuantAttend, _filled_product
from maqee.quant.coded import GridModule, WeightState, rounded_state
from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid, grid_from_range
from maqee.quant.layer import QuantLayer
from maqee.quant.ranges import minmax_grid
from tests.quant.makers import let_learn, stop_learning


def grid_of(x: Tensor, bits: int) -> UniformGrid:
    return grid_from_range(x.min(), x.max(), bits)


def quantized(inner: nn.Linear | nn.Conv2d, *widths: int, x: Tensor | None = None, act_bits: int = 8) -> QuantLayer:
    layer = QuantLayer(inner, "layer")
    for bits in widths:
        rows = layer.rows.detach()
        layer.add_state(rounded_state(rows, minmax_grid(rows, bits), None, inner.bias))
    if x is not None:
        layer.set_input(GridModule(grid_of(x, act_bits)))
    return layer


GRIDS: list[Grid] = [
    UniformGrid(4, torch.tensor([0.1, 0.2]), torch.tensor([7.0, 8.0])),
    LogSqrt2Grid(3, torch.tensor(0.9)),
    TwinGrid(5, torch.tensor(0.01), torch.tensor(0.3), signed=True),
]


@pytest.mark.parametrize("grid", GRIDS, ids=["uniform", "log-sqrt2", "twin"])
def test_grids_are_saved_with_the_model(grid: Grid) -> None:
    module = GridModule(grid)
    assert module.bits == grid.bits
    x = torch.rand(5, 2)
    assert torch.equal(module(x), grid(x))
    other = copy.deepcopy(module)
    with torch.no_grad():
        for buffer in other.buffers():
            buffer.zero_()
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), grid(x))
    assert next(module.double().buffers()).dtype == torch.float64  # the numbers move with the module


def test_weights_by_hand() -> None:
    """Rows 0..3 and -2..4 in 2 bits: steps 1 and 2, zero points 0 and 1."""
    rows = torch.tensor([[0.0, 1.2, 3.0], [-2.0, 0.9, 4.0]])
    state = rounded_state(rows, minmax_grid(rows, 2), None, torch.tensor([0.5, -0.5]))
    assert state.codes.tolist() == [[0, 1, 3], [0, 1, 3]]
    assert state.scale.tolist() == [[1], [2]]
    assert state.zero.tolist() == [[0], [1]]
    assert state.values().tolist() == [[0, 1, 3], [-2, 0, 4]]
    assert state.codes.dtype == torch.uint8


def test_two_groups_of_columns_have_two_grids() -> None:
    rows = torch.tensor([[0.0, 0.3, 30.0, 10.0]])
    group = torch.tensor([0, 0, 1, 1])
    grid = UniformGrid(2, torch.tensor([[0.1, 10.0]]), torch.tensor([[0.0, 0.0]]))
    state = rounded_state(rows, grid, group, None)
    assert state.codes.tolist() == [[0, 3, 3, 1]]
    torch.testing.assert_close(state.values(), rows)


def test_rows_far_from_zero_keep_their_zero_point() -> None:
    rows = torch.tensor([[100.0, 100.005, 100.01]])
    state = rounded_state(rows, minmax_grid(rows, 8), None, None)
    assert int(state.zero) < -(2**15)  # more than 16 bits hold
    torch.testing.assert_close(state.values(), rows, rtol=0, atol=2e-3)


INNER: list[tuple[str, Callable[[], nn.Linear | nn.Conv2d], tuple[int, ...]]] = [
    ("linear", lambda: nn.Linear(6, 4), (3, 5, 6)),
    ("linear without bias", lambda: nn.Linear(6, 4, bias=False), (3, 6)),
    ("patches", lambda: nn.Conv2d(3, 4, 4, stride=4), (2, 3, 8, 8)),
    ("3x3", lambda: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 5, 5)),
    ("depthwise", lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4), (2, 4, 5, 5)),
]


@pytest.mark.parametrize(("make", "shape"), [case[1:] for case in INNER], ids=[case[0] for case in INNER])
def test_a_layer_is_the_inner_one_on_rounded_numbers(
    make: Callable[[], nn.Linear | nn.Conv2d], shape: tuple[int, ...]
) -> None:
    inner, x = make(), torch.randn(shape)
    layer = quantized(inner, 4, x=x, act_bits=4)
    layer.set_bits(4)
    expected = copy.deepcopy(inner)
    state = layer.state()
    assert state is not None
    with torch.no_grad():
        expected.weight.copy_(state.values().view_as(inner.weight))
        torch.testing.assert_close(layer(x), expected(grid_of(x, 4)(x)))
        layer.enabled = False
        assert torch.equal(layer(x), inner(x))
        layer.enabled = True
        layer.set_bits(None)
        assert torch.equal(layer(x), inner(grid_of(x, 4)(x)))


def test_depthwise_over_tokens() -> None:
    inner, tokens = TokenDepthwise(4), torch.randn(2, 6, 4)
    layer = quantized(inner, 8)
    assert torch.equal(layer(tokens, (2, 3)), inner(tokens, (2, 3)))
    layer.set_bits(8)
    assert layer(tokens, (2, 3)).shape == (2, 6, 4)
    torch.testing.assert_close(layer(tokens, (2, 3)), inner(tokens, (2, 3)), rtol=0, atol=0.05)


def test_switching_widths_is_a_look_up() -> None:
    layer, x = quantized(nn.Linear(8, 8), 3, 6), torch.randn(4, 8)
    states = dict(layer.states.items())
    outputs: dict[int | None, Tensor] = {}
    for bits in (3, 6, 3, None, 6):
        layer.set_bits(bits)
        assert layer.bits == bits
        assert torch.equal(layer(x), outputs.setdefault(bits, layer(x)))
    assert all(layer.states[name] is state for name, state in states.items())
    assert len({tuple(output.flatten().tolist()) for output in outputs.values()}) == 3


def test_a_width_that_was_not_fitted() -> None:
    layer = quantized(nn.Linear(4, 4), 3, 6)
    layer.set_bits(3)
    with pytest.raises(MaqeeError, match=r"layer has no weights at 5 bits \(fitted: 3, 6\)"):
        layer.set_bits(5)
    assert layer.bits == 3


def test_it_answers_for_the_inner_layer() -> None:
    layer = quantized(nn.Linear(4, 7), 4)
    assert (layer.in_features, layer.out_features) == (4, 7)
    with pytest.raises(AttributeError):
        _ = layer.no_such_thing


def test_copies_and_state_dicts_hold_everything() -> None:
    x = torch.randn(3, 5)
    layer = quantized(nn.Linear(5, 4), 3, 4, x=x)
    layer.set_bits(4)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(x), layer(x))
    names, place = set(layer.state_dict()), "fitted.None"
    assert {"inner.weight", f"{place}.input.scale", f"{place}.states.3.stored"} <= names
    assert {f"{place}.states.4.zero", f"{place}.states.4.bias"} <= names
    assert twin.states["4"] is not layer.states["4"]


def test_a_bias_for_each_width() -> None:
    layer, x = QuantLayer(nn.Linear(2, 2), "layer"), torch.zeros(1, 2)
    for bits in (3, 4):
        rows = layer.rows.detach()
        layer.add_state(rounded_state(rows, minmax_grid(rows, bits), None, torch.full((2,), float(bits))))
    for bits in (3, 4):
        layer.set_bits(bits)
        assert layer(x).tolist() == [[bits, bits]]


# --- attention -------------------------------------------------------------------------------------------------------


def attention_inputs() -> dict[str, Tensor]:
    return {name: torch.randn(2, 3, 5, 4) for name in ("q", "k", "v")}


def fitted_attend(operands: dict[str, Tensor], bits: int, bias: Tensor | None = None) -> QuantAttend:
    attend = QuantAttend("attend")

    def fit(module: QuantAttend, name: str, x: Tensor) -> None:
        grid: Grid = LogSqrt2Grid(bits, x.max()) if name == "p" else grid_of(x, bits)
        module.grids[name] = GridModule(grid)

    attend.observer = fit
    attend(**operands, bias=bias)
    attend.observer = None
    return attend


@pytest.mark.parametrize("biased", [False, True])
def test_attention_without_grids_is_attention(biased: bool) -> None:
    operands = attention_inputs()
    bias = torch.randn(1, 3, 5, 5) if biased else None
    torch.testing.assert_close(QuantAttend("attend")(**operands, bias=bias), Attend()(**operands, bias=bias))
    attend = fitted_attend(operands, 3, bias)
    attend.enabled = False
    torch.testing.assert_close(attend(**operands, bias=bias), Attend()(**operands, bias=bias))


def test_attention_on_rounded_operands() -> None:
    operands = attention_inputs()
    attend = fitted_attend(operands, 4)
    assert tuple(attend.all_grids()) == QuantAttend.OPERANDS
    assert {name: grid.kind for name, grid in attend.all_grids().items()} == {
        "q": "uniform", "k": "uniform", "p": "log-sqrt2", "v": "uniform",
    }  # fmt: skip
    q, k, v = (attend.grids[name](operands[name]) for name in "qkv")
    p = attend.grids["p"](torch.softmax(q @ k.mT / 2, dim=-1))
    torch.testing.assert_close(attend(**operands), p @ v)


# --- gradients -------------------------------------------------------------------------------------------------------


def learning_layer() -> tuple[QuantLayer, Tensor, Tensor]:
    """A layer, an input that its grid clips in places, and the weights of a linear loss."""
    x = torch.randn(6, 5)
    layer = quantized(nn.Linear(5, 4), 4, x=0.6 * x, act_bits=4)
    layer.set_bits(4)
    let_learn(layer)
    return layer, x, torch.randn(6, 4)


def away_from_rounding_points(grid: Grid, x: Tensor, step: Tensor) -> Tensor:
    """Where a step up moves by exactly one code or is clipped on both sides."""
    here, there = grid.covers(x), grid.covers(x + step)
    place = x / step
    return (here == there) & ((place - place.floor() - 0.5).abs() > 0.02)


def test_gradient_of_the_weights_is_the_difference_over_one_step() -> None:
    """The loss is linear in the rounded weights, so moving a weight by its step tells the gradient exactly."""
    layer, x, wanted = learning_layer()
    state = layer.state()
    assert state is not None
    with torch.no_grad():
        layer.inner.weight.mul_(1.2)  # training moves weights beyond the range that was fitted
    (layer(x) * wanted).sum().backward()
    found = layer.inner.weight.grad
    assert found is not None
    usable = away_from_rounding_points(state.grid(), layer.rows.detach(), state.scale)
    checked = clipped = 0
    with torch.no_grad():
        before = (layer(x) * wanted).sum()
        for out, column in product(range(4), range(5)):
            if not usable[out, column]:
                continue
            step = state.scale[out, 0]
            layer.inner.weight[out, column] += step
            difference = ((layer(x) * wanted).sum() - before) / step
            layer.inner.weight[out, column] -= step
            assert float(difference) == pytest.approx(float(found[out, column]), abs=2e-3)
            checked += 1
            clipped += float(found[out, column]) == 0
    assert checked >= 8
    assert 0 < clipped < checked
    assert layer.inner.bias is not None
    torch.testing.assert_close(layer.inner.bias.grad, wanted.sum(0))


def test_gradient_of_the_input_is_the_difference_over_one_step() -> None:
    layer, x, wanted = learning_layer()
    assert layer.input is not None
    grid = layer.input.grid
    assert isinstance(grid, UniformGrid)
    x.requires_grad_()
    (layer(x) * wanted).sum().backward()
    assert x.grad is not None
    usable = away_from_rounding_points(grid, x.detach(), grid.scale)
    outside = ~grid.covers(x.detach())
    assert (x.grad[outside] == 0).all()
    assert 0 < int(outside.sum()) < x.numel()
    with torch.no_grad():
        before = (layer(x) * wanted).sum()
        for row, column in usable.nonzero().tolist():
            moved = x.detach().clone()
            moved[row, column] += grid.scale
            difference = ((layer(moved) * wanted).sum() - before) / grid.scale
            assert float(difference) == pytest.approx(float(x.grad[row, column]), abs=2e-3)


def test_gradient_through_attention() -> None:
    """v enters linearly: a step tells its gradient. q and k go through softmax: small differences at the rounded
    operands tell theirs, as straight-through means the gradient at the point where the numbers were rounded to."""
    operands = {name: x.requires_grad_() for name, x in attention_inputs().items()}
    with torch.no_grad():
        attend = fitted_attend(operands, 6)
    wanted = torch.randn(2, 3, 5, 4)
    (attend(**operands) * wanted).sum().backward()
    rounded = {name: attend.grids[name](x.detach()).double() for name, x in operands.items()}
    probabilities = attend.grids["p"].grid
    assert isinstance(probabilities, LogSqrt2Grid)
    scores = rounded["q"] @ rounded["k"].mT / 2
    passes = probabilities.covers(torch.softmax(scores, -1)).double()

    def loss(q: Tensor, k: Tensor) -> Tensor:
        """What the straight-through gradient is the gradient of, near the rounded operands."""
        return ((torch.softmax(q @ k.mT / 2, -1) * passes) @ rounded["v"] * wanted).sum()

    for name in "qk":
        grid = attend.grids[name].grid
        assert isinstance(grid, UniformGrid)
        found = operands[name].grad
        assert found is not None
        for index in [(0, 0, 0, 0), (1, 2, 3, 1), (0, 1, 4, 3), (1, 0, 2, 2)]:
            pair = []
            for sign in (1, -1):
                moved = {key: value.clone() for key, value in rounded.items()}
                moved[name][index] += sign * 1e-5
                pair.append(loss(moved["q"], moved["k"]))
            slope = float(pair[0] - pair[1]) / 2e-5 * float(grid.covers(operands[name].detach())[index])
            assert float(found[index]) == pytest.approx(slope, abs=2e-4)
    grid = attend.grids["v"].grid
    assert isinstance(grid, UniformGrid)
    v, found = operands["v"].detach(), operands["v"].grad
    assert found is not None
    with torch.no_grad():
        before = (attend(**operands) * wanted).sum()
        for index in away_from_rounding_points(grid, v, grid.scale).nonzero()[:40].tolist():
            moved_v = v.clone()
            moved_v[tuple(index)] += grid.scale
            after = (attend(operands["q"], operands["k"], moved_v) * wanted).sum()
            assert float((after - before) / grid.scale) == pytest.approx(float(found[tuple(index)]), abs=5e-3)


def test_learning_off_gives_no_gradient_to_the_weights() -> None:
    layer, x, _ = learning_layer()
    stop_learning(layer)
    layer(x.requires_grad_()).sum().backward()
    assert layer.inner.weight.grad is None
    assert x.grad is not None


def test_learning_starts_from_the_fitted_weights() -> None:
    layer, x, _ = learning_layer()
    with torch.no_grad():
        learned = layer(x)
        stop_learning(layer)
        torch.testing.assert_close(learned, layer(x))


def test_states_are_compact() -> None:
    state = rounded_state(torch.randn(4, 8), minmax_grid(torch.randn(4, 8), 4), None, torch.zeros(4))
    assert isinstance(state, WeightState)
    assert state.stored.numel() == 16  # two to a byte
    assert F.one_hot(state.codes.long(), 16).sum() == 32


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_filled_rows_are_the_same(turned: bool) -> None:
    left, right = torch.randn(2, 3, 5, 7, dtype=torch.float64), torch.randn(2, 3, 7, 13, dtype=torch.float64)
    if turned:
        right = right.transpose(-2, -1).contiguous().transpose(-2, -1)
    results = []
    for multiply in (torch.matmul, partial(_filled_product, inner=1, columns=3)):
        one, other = left.detach().requires_grad_(), right.detach().requires_grad_()
        found = multiply(one, other)
        (found * torch.arange(13)).sum().backward()
        results.append([found, one.grad, other.grad])
    for expected, found in zip(*results, strict=True):
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
