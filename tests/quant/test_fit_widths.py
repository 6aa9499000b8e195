"""One fit for many pairs of widths is what a fit for each would be, and switching is a look-up without a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone, presets
from maqee.models.config import ViTConfig
from maqee.models.load import build_backbone
from maqee.quant import Bits, QuantizedModel, QuantSettings, quantize
from maqee.quant.artifact import load_quantized, save_quantized
from maqee.quant.coded import WeightState
from maqee.quant.integer import execute_integers
from maqee.quant.layer import QuantLayer
from maqee.quant.learning import finish_learning, start_learning
from maqee.widths import BitSettings, BlockWidths
from tests.helpers import max_difference, randomize
from tests.quant.makers import pictures, quantized

ACTS = (3, 4, 6)
WEIGHTS = (3, 4, 5)
WIDTHS: dict[str, Any] = {"widths": WEIGHTS, "act_widths": ACTS}
MIXED = (
    BlockWidths(qkv=(3, 6), attention=(4, 4), projection=(5, 3), fc1=(4, 4), fc2=(3, 3)),
    BlockWidths(qkv=(5, 3), attention=(6, 6), projection=(3, 4), fc1=(3, 6), fc2=(5, 4)),
)


def mixed(model: QuantizedModel) -> BitSettings:
    """Widths that differ between the layers of every block."""
    now, blocks = model.bit_settings, (MIXED * model.depth)[: model.depth]
    return BitSettings(blocks=blocks, patch=now.patch, classifier=now.classifier, head=now.head, merge=now.merge)


def outputs(model: QuantizedModel | nn.Module) -> Tensor:
    network = model.model if isinstance(model, QuantizedModel) else model
    with torch.no_grad():
        if isinstance(network, EarlyExitModel):
            return torch.stack(network.forward_all(pictures()).outputs)
        return network(pictures())


def in_use(model: QuantizedModel) -> dict[str, Tensor]:
    """Every number that decides the outputs at the widths in use: codes, scales, biases, grids and norms."""
    found: dict[str, Tensor] = {}
    for name, layer in model.layers.items():
        state = layer.state()
        assert state is not None
        assert layer.input is not None
        parts: dict[str, Tensor | None] = {"codes": state.codes, **dict(state.named_buffers(recurse=False))}
        parts |= {f"input {key}": value for key, value in layer.input.named_buffers()}
        if (norm := model.norm_before(name)) is not None:
            parts |= {"norm weight": norm.weight.detach(), "norm bias": norm.bias.detach()}
        found |= {f"{name} {key}": value for key, value in parts.items() if value is not None}
    for name, attend in model.attends.items():
        for operand, grid in attend.all_grids().items():
            found |= {f"{name} {operand} {key}": value for key, value in grid.named_buffers()}
    return found


def assert_same(one: QuantizedModel, other: QuantizedModel) -> None:
    ours, theirs = in_use(one), in_use(other)
    assert ours.keys() == theirs.keys()
    assert [name for name, value in ours.items() if not torch.equal(value, theirs[name])] == []
    assert torch.equal(outputs(one), outputs(other))


# --- one fit, or many ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "method"), [("test-vit", "erq"), ("test-vit", "erq-2024"), ("test-swin", "erq"), ("test-dinov2", "erq")]
)
def test_erq_at_every_pair(preset: str, method: str) -> None:
    """ERQ fits weights to the rounding of their input: what it finds for every pair is what it finds for the pair."""
    together = quantized(preset, method, switched=("block", "merge"), **WIDTHS)
    for activations in ACTS:
        alone = {w: quantized(preset, method, weight_bits=w, act_bits=activations) for w in WEIGHTS}
        for weights, other in alone.items():
            together.set_widths(BitSettings.uniform(weights, activations, together.depth))
            assert together.bit_settings.blocks == other.bit_settings.blocks
            assert_same(together, other)


@pytest.mark.parametrize("preset", ["test-vit", "test-swin"])
@pytest.mark.parametrize("method", ["repq", "mptq", "rtn"])
def test_other_methods_at_every_activation_width(method: str, preset: str) -> None:
    together = quantized(preset, method, switched=("block", "merge"), **WIDTHS)
    for activations in ACTS:
        together.set_widths(BitSettings.uniform(4, activations, together.depth))
        assert_same(together, quantized(preset, method, widths=WEIGHTS, act_bits=activations))


def test_what_cannot_be_switched_is_as_in_a_fit_at_the_widths_asked() -> None:
    """Heads keep their widths; they see what the blocks give at the widths that were asked."""
    options: dict[str, Any] = {"method": "erq", "exits": "lgvit", "heads": Bits(5, 6), "classifier": Bits(8, 8)}
    assert_same(quantized(**options, **WIDTHS), quantized(**options))


def test_the_model_is_left_at_the_widths_asked() -> None:
    model = quantized(method="erq", weight_bits=5, act_bits=3, **WIDTHS)
    assert model.bit_settings == BitSettings.uniform(5, 3, 4)
    model.check_applied()


@pytest.mark.parametrize("method", ["rtn", "repq", "erq", "mptq"])
@pytest.mark.parametrize("preset", ["test-vit", "test-swin"])
def test_float_is_the_model_that_came_in_at_every_width(preset: str, method: str) -> None:
    original = randomize(load_backbone(preset))
    model, expected = quantized(preset, method, switched=("block", "merge"), **WIDTHS), outputs(original)
    for settings in (*(BitSettings.uniform(4, a, model.depth) for a in ACTS), mixed(model)):
        model.set_widths(settings)
        with model.in_float():
            torch.testing.assert_close(outputs(model), expected, rtol=1e-4, atol=1e-4)


# --- switching -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rtn", "repq", "erq", "mptq"])
def test_there_and_back(method: str) -> None:
    model = quantized("test-swin", method, switched=("block", "merge"), **WIDTHS)
    first, kept = outputs(model), in_use(model)
    model.set_bits(2, 5, 6)
    assert model.bit_settings.blocks[1] == BlockWidths.uniform(5, 6)
    assert not torch.equal(outputs(model), first)
    model.set_bits(2, 3)  # activations stay
    assert model.bit_settings.blocks[1] == BlockWidths.uniform(3, 6)
    model.set_bits(2, 4, 4)
    assert torch.equal(outputs(model), first)
    model.set_widths(mixed(model))
    assert model.bit_settings.blocks == mixed(model).blocks
    twice = outputs(model)
    model.set_widths(BitSettings.uniform(4, 4, model.depth))
    assert torch.equal(outputs(model), first)
    assert all(torch.equal(value, kept[name]) for name, value in in_use(model).items())
    model.set_widths(mixed(model))
    assert torch.equal(outputs(model), twice)


def test_heads_and_mergings_can_be_switched() -> None:
    model = quantized("test-swin", "erq", exits="lgvit", switched=("block", "merge", "head"), **WIDTHS)
    first, exits = outputs(model), len(model.bit_settings.heads) or 4
    heads = tuple((WEIGHTS[number % 3], ACTS[(number + 1) % 3]) for number in range(exits))
    wanted = BitSettings(blocks=mixed(model).blocks, head=heads[0], heads=heads, merge=(5, 6))
    model.set_widths(wanted)
    assert model.bit_settings == wanted
    model.set_widths(BitSettings.uniform(4, 4, model.depth))
    assert torch.equal(outputs(model), first)


def test_widths_that_were_not_fitted_change_nothing() -> None:
    model = quantized(**WIDTHS)
    before = model.bit_settings
    for weights, activations, words in ((4, 5, "has no input at 5 bits"), (6, 4, "has no weights at 6 bits")):
        with pytest.raises(MaqeeError, match=words):
            model.set_bits(2, weights, activations)
        with pytest.raises(MaqeeError, match=words):
            model.set_widths(before.with_block(4, BlockWidths.uniform(weights, activations)))
    with pytest.raises(MaqeeError, match="has no grids at 5 bits"):
        model.set_widths(before.with_block(1, BlockWidths.uniform(4, 4)._replace(attention=(5, 5))))
    assert model.bit_settings == before


# --- what is kept of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["repq", "erq", "mptq"])
@pytest.mark.parametrize("preset", ["test-vit", "test-swin"])
def test_a_mixed_allocation_is_saved(preset: str, method: str, tmp_path: Path) -> None:
    model = quantized(preset, method, switched=("block", "merge"), **WIDTHS)
    model.set_widths(mixed(model))
    save_quantized(model, tmp_path)
    again = load_quantized(tmp_path)
    assert again.bit_settings == model.bit_settings
    assert again.table() == model.table()
    assert torch.equal(outputs(again), outputs(model))


@pytest.mark.parametrize("method", ["repq", "erq", "mptq"])
def test_integers_at_a_mixed_allocation(method: str) -> None:
    model = quantized(method=method, exits="lgvit", **WIDTHS)
    model.set_widths(mixed(model))
    simulated = outputs(model)
    with execute_integers(model):
        executed = outputs(model)
    assert torch.equal(executed, simulated)


@pytest.mark.parametrize("method", ["repq", "erq"])
def test_many_pairs_take_little_room(method: str) -> None:
    """Codes of up to 4 bits lie two to a byte: 24 pairs take 6 x (1/2 + 1/2 + 1 + 1) bytes for 4 of a float weight."""
    config = presets["test-vit"]
    assert isinstance(config, ViTConfig)
    network = build_backbone(replace(config, depth=1, dim=192, mlp_dim=768))
    settings = QuantSettings(widths=(3, 4, 5, 6), act_widths=(3, 4, 5, 6, 7, 8))
    model = quantize(randomize(network), pictures(), method, settings)
    weights = sum(layer.inner.weight.nbytes for layer in model.layers.values())
    held = {buffer.data_ptr(): buffer.nbytes for layer in model.layers.values() for buffer in layer.buffers()}
    assert sum(held.values()) + weights <= 6 * weights  # the float weights stay too


# --- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["repq", "erq", "mptq"])
@pytest.mark.parametrize("learn_steps", [True, False])
@pytest.mark.parametrize("preset", ["test-vit", "test-swin"])
def test_learning_begins_at_a_mixed_allocation(preset: str, method: str, learn_steps: bool) -> None:
    """The first pass computes what the codes computed, and so do the codes that nothing was learnt for."""
    model = quantized(preset, method, exits="mlp", switched=("block", "merge"), **WIDTHS)
    model.set_widths(mixed(model))
    before, codes = outputs(model), {name: layer.state().codes for name, layer in model.layers.items()}  # type: ignore[union-attr]
    start_learning(model, learn_steps)
    assert model.bit_settings.blocks == mixed(model).blocks
    learning = outputs(model)
    finish_learning(model)
    assert model.bit_settings.blocks == mixed(model).blocks
    for name, layer in model.layers.items():
        assert torch.equal(layer.state().codes, codes[name]), name  # type: ignore[union-attr]
    assert torch.equal(outputs(model), before)
    assert max_difference(learning, before) < 0.05 * float(before.abs().max())  # a rounding may fall otherwise


@pytest.mark.parametrize("method", ["repq", "erq"])
def test_other_widths_after_learning(method: str) -> None:
    """They are made from what was learnt: the same range of the input with more or fewer points, the same weights."""
    model = quantized(method=method, exits="mlp", **WIDTHS)
    model.set_widths(mixed(model))
    train(model)
    learnt = outputs(model)
    for weights in WEIGHTS:
        for activations in ACTS:
            for block in range(1, 5):
                model.set_bits(block, weights, activations)
            assert model.bit_settings.blocks == BitSettings.uniform(weights, activations, 4).blocks
            assert torch.isfinite(outputs(model)).all()
            model.check_applied()
    model.set_widths(mixed(model))
    assert torch.equal(outputs(model), learnt)
    with model.in_float():
        exact = outputs(model)
    fine, rough = (after_switch(model, pair) for pair in ((5, 6), (3, 3)))
    assert (fine - exact).square().mean() < (rough - exact).square().mean()


def after_switch(model: QuantizedModel, pair: tuple[int, int]) -> Tensor:
    for block in range(1, model.depth + 1):
        model.set_bits(block, *pair)
    return outputs(model)


def train(model: QuantizedModel) -> None:
    """A few steps towards nothing in particular."""
    assert isinstance(model.model, EarlyExitModel)
    start_learning(model)
    optimizer = torch.optim.SGD(model.model.requires_grad_(True).parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        torch.stack(model.model.forward_all(pictures()).outputs).square().mean().backward()
        optimizer.step()
    finish_learning(model)


# --- codes -----------------------------------------------------------------------------------------------------------


@given(bits=st.integers(2, 8), rows=st.integers(1, 7), columns=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_codes_come_back(bits: int, rows: int, columns: int, seed: int) -> None:
    """Two to a byte up to 4 bits, one above; odd numbers of codes leave half a byte empty."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (rows, columns), generator=generator)
    state = WeightState(bits, codes, torch.ones(rows, 1), torch.zeros(rows, 1), None, None)
    count = rows * columns
    assert state.stored.dtype == torch.uint8
    assert state.stored.numel() == ((count + 1) // 2 if bits <= 4 else count)
    assert torch.equal(state.codes.long(), codes)
    assert torch.equal(state.values(), codes.float())
    again = WeightState.stored_as(bits, (rows, columns), dict(state.named_buffers()))
    assert torch.equal(again.codes, state.codes)
    assert (again.group, again.bias) == (None, None)


def test_a_layer_without_a_norm_has_nothing_to_move() -> None:
    model = quantized(method="erq", **WIDTHS)
    for layer in model.layers.values():
        moved = [width.ratio is not None for width in layer.fitted.values()]
        assert set(moved) == {bool(layer.norm)}
        assert isinstance(layer, QuantLayer)
        assert not layer.folded
    network = add_exits(load_backbone("test-vit"), "mlp")
    single = quantize(randomize(network), pictures(), "erq", QuantSettings(widths=WEIGHTS))
    assert all(layer.folded for layer in single.layers.values())
