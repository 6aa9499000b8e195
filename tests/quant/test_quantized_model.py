"""A whole quantized model, by every method there is: what got which bits, how near it is, and switching widths."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy, add_exits
from maqee.models import load_backbone, presets
from maqee.models.config import SwinConfig, ViTConfig
from maqee.models.load import build_backbone
from maqee.quant import Bits, QuantizedModel, QuantSettings, methods, quantize
from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from tests.helpers import by_block, randomize, set_weights
from tests.quant.test_places import FAMILIES, LGVIT, VIT_EE

METHODS = methods.names()


def images(count: int = 2, size: int = 32) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(7))


def backbone(family: str) -> nn.Module:
    torch.manual_seed(3)
    model = load_backbone(family)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # norms and biases that are not all ones and zeros
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape))
            if name.startswith("head."):
                parameter.add_(0.2 * torch.randn(parameter.shape))
    return model.eval()


def all_heads(family: str) -> EarlyExitModel:
    """One exit of every kind, in a model that is deep enough for them."""
    kinds = (*VIT_EE, *LGVIT)
    torch.manual_seed(4)
    config = presets[family]
    if isinstance(config, ViTConfig):
        deep: ViTConfig | SwinConfig = replace(config, depth=len(kinds) + 1, image_size=(16, 16), patch_size=4)
    else:
        deep = replace(config, image_size=(16, 16), depths=(6, 6, len(kinds) - 11))
    model = EarlyExitModel(build_backbone(deep), range(1, len(kinds) + 1), kinds)
    return randomize(model, std=0.15)  # type: ignore[return-value]


def decibels(value: Tensor, reference: Tensor) -> float:
    """Signal to noise."""
    noise = float((value - reference).double().square().sum())
    return 10 * math.log10(float(reference.double().square().sum()) / max(noise, 1e-30))


def outputs(model: nn.Module, x: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return model.forward_all(x).outputs if isinstance(model, EarlyExitModel) else [model(x)]


# --- every method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_eight_bits_are_close_and_four_are_four(family: str, method: str) -> None:
    model, x = backbone(family), images()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    [reference] = outputs(model, x)
    near, far = (quantize(model, x, method, QuantSettings(weight_bits=bits, act_bits=bits)) for bits in (8, 4))
    [fine], [rough] = outputs(near.model, x), outputs(far.model, x)
    assert decibels(fine, reference) > 18
    assert decibels(fine, reference) > decibels(rough, reference)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    rows = {row.layer: row for row in far.table()}
    assert list(rows) == list(far.places)
    for place in far.places.values():
        expected = "float" if place.role in ("patch", "classifier") else "4x4" if place.attention else "4/4"
        assert (rows[place.name].asked, rows[place.name].got) == (expected, expected)
        assert (rows[place.name].grid == "float") == (expected == "float")
        module = far.model.get_submodule(place.name)
        assert isinstance(module, QuantLayer | QuantAttend) == (expected != "float")
    assert far.bit_settings.block_weights == (4,) * far.depth


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "method"), [*(("test-vit", method) for method in METHODS), ("test-swin", "repq"), ("test-swin", "mptq")]
)
def test_every_head_is_quantized(family: str, method: str) -> None:
    model, x = all_heads(family), images(size=16)
    reference = outputs(model, x)
    near = quantize(model, x, method, QuantSettings(weight_bits=8, act_bits=8))
    for kind, fine, exact in zip((*model.kinds, "final"), outputs(near.model, x), reference, strict=True):
        assert decibels(fine, exact) > 14, kind
    heads = [row for row in near.table() if row.role == "head"]
    assert {(row.asked, row.got) for row in heads} == {("8/8", "8/8"), ("8x8", "8x8")}
    assert {int(row.layer.split(".")[1]) for row in heads} == set(range(len(model.kinds)))


def test_heads_get_the_bits_of_the_blocks_unless_they_have_their_own() -> None:
    model, x = randomize(add_exits(load_backbone("test-vit"), "lgvit", positions=(1, 2))), images()
    for heads, expected in ((None, {"4/4", "4x4"}), (Bits(6, 5), {"6/5", "5x5"})):
        rows = quantize(model, x, "rtn", QuantSettings(widths=(3,), heads=heads)).table()
        assert {row.got for row in rows if row.role == "head"} == expected


@pytest.mark.parametrize("method", METHODS)
def test_really_stopping_agrees_with_looking(method: str) -> None:
    """`run` walks the same quantized layers as `forward_all`."""
    torch.manual_seed(0)
    model = randomize(add_exits(load_backbone("test-vit"), "lgvit", positions=(1, 2)), std=0.2)
    quantized = quantize(model, images(8), method).model
    assert isinstance(quantized, EarlyExitModel)
    every = outputs(quantized, images(8))
    decision = quantized.run(images(8), Policy.never(2))
    torch.testing.assert_close(decision.output, every[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_again(method: str) -> None:
    model, x = backbone("test-vit"), images()
    one, other = (quantize(model, x, method) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(outputs(one.model, x), outputs(other.model, x), strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_widths_are_fitted_together_and_switched_apart(method: str) -> None:
    model, x = backbone("test-vit"), images()
    quantized = quantize(model, x, method, QuantSettings(widths=(3, 6)))
    first = outputs(quantized.model, x)[0]
    states = {name: dict(layer.states.items()) for name, layer in quantized.layers.items()}
    assert all(set(found) == {"3", "4", "6"} for found in states.values())
    quantized.set_bits(2, 6)
    assert quantized.bit_settings.block_weights == (4, 6, 4, 4)
    assert not torch.equal(outputs(quantized.model, x)[0], first)
    for name, layer in quantized.layers.items():
        assert layer.bits == (6 if quantized.places[name].block == 2 else 4)
        assert all(layer.states[key] is state for key, state in states[name].items())
    assert {row.asked for row in quantized.table() if row.layer == "blocks.1.mlp.fc1"} == {"6/4"}
    quantized.check_applied()
    set_weights(quantized, (4, 4, 4, 4))
    assert torch.equal(outputs(quantized.model, x)[0], first)
    set_weights(quantized, (3, 3, 3, 3))
    [coarse] = outputs(quantized.model, x)
    set_weights(quantized, (6, 6, 6, 6))
    [fine] = outputs(quantized.model, x)
    [exact] = outputs(model, x)
    assert decibels(fine, exact) > decibels(coarse, exact)


@pytest.mark.parametrize("method", METHODS)
def test_parts_that_are_float_by_default_can_be_quantized(method: str) -> None:
    settings = QuantSettings(patch=Bits(4, 8), classifier=Bits(5, 6), integer_zeros=False)
    quantized = quantize(backbone("test-deit"), images(), method, settings)
    got = {row.layer: row.got for row in quantized.table()}
    assert got["embedding.patch"] == "4/8"
    assert got["head.linear"] == got["head.distillation"] == "5/6"
    only_weights = quantize(backbone("test-vit"), images(), method, QuantSettings(patch=Bits(4, None)))
    assert {row.layer: row.got for row in only_weights.table()}["embedding.patch"] == "4/float"


@pytest.mark.parametrize("method", METHODS)
def test_overrides(method: str) -> None:
    settings = QuantSettings(
        widths=(3,),
        overrides=(
            (r"blocks\.0\.", Bits(8, 8)),
            (r"blocks\.1\..*attend", Bits(None, None)),
            (r"mlp\.fc2", Bits(6, None)),
            (r"blocks\.3\.attn\.proj", Bits(None, 5)),
        ),
    )
    quantized = quantize(backbone("test-vit"), images(), method, settings)
    got = {row.layer: row.got for row in quantized.table()}
    assert [got[f"blocks.0.{name}"] for name in ("attn.qkv", "attn.attend", "mlp.fc2")] == ["8/8", "8x8", "8/8"]
    assert got["blocks.1.attn.attend"] == "float"
    assert got["blocks.2.mlp.fc2"] == "6/float"
    assert got["blocks.3.attn.proj"] == "float/5"
    assert got["blocks.3.attn.qkv"] == "4/4"
    quantized.set_bits(3, 3)  # what an override fixed stays
    got = {row.layer: row.got for row in quantized.table()}
    assert (got["blocks.2.mlp.fc1"], got["blocks.2.mlp.fc2"]) == ("3/4", "6/float")
    assert torch.isfinite(outputs(quantized.model, images())[0]).all()


@pytest.mark.parametrize("method", METHODS)
def test_constant_images(method: str) -> None:
    quantized = quantize(backbone("test-vit"), torch.zeros(2, 3, 32, 32), method)
    assert torch.isfinite(outputs(quantized.model, images())[0]).all()


@pytest.mark.parametrize("method", METHODS)
def test_numbers_that_are_none(method: str) -> None:
    bad = images()
    bad[0, 0, 0, 0] = math.nan
    with pytest.raises(MaqeeError, match="calibration images holds 1 values that are not finite"):
        quantize(backbone("test-vit"), bad, method)
    model = backbone("test-vit")
    with torch.no_grad():
        dict(model.named_parameters())["blocks.1.mlp.fc2.weight"][0, 0] = math.inf
    with pytest.raises(MaqeeError, match=r"The model's blocks\.1\.mlp\.fc2\.weight holds 1 values"):
        quantize(model, images(), method)


@pytest.mark.parametrize("method", METHODS)
def test_images_that_are_none(method: str) -> None:
    for shape in ((0, 3, 32, 32), (3, 32, 32)):
        with pytest.raises(MaqeeError, match="give \\(n, channels, height, width\\)"):
            quantize(backbone("test-vit"), torch.zeros(shape), method)


# --- the handles -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted() -> QuantizedModel:
    return quantize(backbone("test-vit"), images(), "rtn", QuantSettings(widths=(3, 5)))


def test_unknown_method() -> None:
    with pytest.raises(MaqeeError, match="did you mean repq"):
        quantize(backbone("test-vit"), images(), "rebq")


def test_an_override_that_matches_nothing() -> None:
    with pytest.raises(MaqeeError, match=r"'blocks\\\\.9' matches no layer"):
        quantize(backbone("test-vit"), images(), "rtn", QuantSettings(overrides=((r"blocks\.9", Bits(4, 4)),)))


def test_all_or_none_in_a_block(fitted: QuantizedModel) -> None:
    layers = [layer for layer in fitted.block_modules(2) if isinstance(layer, QuantLayer)]
    kept = layers[-1].states["5"]
    del layers[-1].states["5"]
    try:
        with pytest.raises(MaqeeError, match=r"blocks\.1\.mlp\.fc2 has no weights at 5 bits"):
            fitted.set_bits(2, 5)
        assert {layer.bits for layer in layers} == {4}
        with pytest.raises(MaqeeError, match="no weights at 5 bits"):
            set_weights(fitted, (3, 5, 3, 3))
        assert fitted.bit_settings.block_weights == (4, 4, 4, 4)
    finally:
        layers[-1].states["5"] = kept


@pytest.mark.parametrize("block", [0, 5, -1])
def test_no_such_block(fitted: QuantizedModel, block: int) -> None:
    with pytest.raises(MaqeeError, match="blocks go from 1 to 4"):
        fitted.set_bits(block, 4)


def test_wrong_number_of_widths(fitted: QuantizedModel) -> None:
    with pytest.raises(MaqeeError, match="There are widths for 3 blocks, and the model has 4"):
        fitted.set_widths(by_block((4, 4, 4)))


def test_the_width_of_a_block_is_that_of_most_of_its_layers(fitted: QuantizedModel) -> None:
    layer = fitted.layers["blocks.0.attn.qkv"]
    layer.set_bits(3)
    try:
        assert fitted.bit_settings.blocks[0].qkv == (3, 4)
        assert fitted.bit_settings.block_weights[0] == 4
    finally:
        layer.set_bits(4)


def test_in_float_computes_in_float_for_a_while(fitted: QuantizedModel) -> None:
    x = images()
    inside = outputs(fitted.model, x)[0]
    with fitted.in_float():
        torch.testing.assert_close(outputs(fitted.model, x), outputs(backbone("test-vit"), x), rtol=1e-4, atol=1e-5)
    assert torch.equal(outputs(fitted.model, x)[0], inside)


def test_observers_are_gone_afterwards(fitted: QuantizedModel) -> None:
    seen: list[str] = []

    def look(layer: QuantLayer, x: Tensor) -> None:
        seen.append(layer.name)
        raise RuntimeError

    with pytest.raises(RuntimeError), fitted.observing(look, None):
        fitted.run_everything(images())
    fitted.run_everything(images())
    assert seen == ["blocks.0.attn.qkv"]


def test_layer_scale_is_folded_in() -> None:
    quantized = quantize(backbone("test-dinov2"), images(), "rtn")
    assert not [name for name, _ in quantized.model.named_parameters() if "gamma" in name]


# --- what could not be applied ---------------------------------------------------------------------------------------


def lazy(quantized: QuantizedModel, calibration: Tensor, skip: str) -> None:
    """Round-to-nearest that forgets one thing."""
    methods["rtn"](quantized, calibration)
    if skip == "weights":
        quantized.layers["blocks.0.mlp.fc1"].set_bits(None)
    elif skip == "input":
        quantized.layers["blocks.0.mlp.fc1"].set_input(None)
    elif skip == "operand":
        del quantized.attends["blocks.0.attn.attend"].grids["p"]
    elif skip == "attention":
        quantized.attends["blocks.0.attn.attend"].grids.clear()
    elif skip == "width":
        del quantized.layers["blocks.0.mlp.fc1"].states["6"]


@pytest.mark.parametrize(
    ("skip", "message"),
    [
        ("weights", r"blocks\.0\.mlp\.fc1 was to get 4/4 bits and got float/4: lazy cannot do that"),
        ("input", r"blocks\.0\.mlp\.fc1 was to get 4/4 bits and got 4/float"),
        ("operand", r"blocks\.0\.attn\.attend was to get 4x4 bits and got 4x4/float"),
        ("attention", r"blocks\.0\.attn\.attend was to get 4x4 bits and got float"),
        ("width", r"blocks\.0\.mlp\.fc1 has no weights at 6 bits"),
    ],
)
def test_what_was_asked_and_not_done_is_an_error(skip: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries: dict[str, Any] = methods._entries
    monkeypatch.setitem(entries, "lazy", lambda quantized, calibration: lazy(quantized, calibration, skip))
    with pytest.raises(MaqeeError, match=message):
        quantize(backbone("test-vit"), images(), "lazy", QuantSettings(widths=(6,)))
