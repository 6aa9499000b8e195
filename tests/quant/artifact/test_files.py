"""Saved as codes, loaded, run again: the same answers to the bit, in hardly more bytes than the bits need."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.io import to_json
from maqee.models import load_backbone
from maqee.quant import Bits, QuantizedModel, QuantSettings, methods, quantize
from maqee.quant.artifact.files import save_quantized
from maqee.quant.artifact.spec import settings_from_json, settings_to_json
from maqee.quant.coded import GridModule
from maqee.quant.grids import UniformGrid
from maqee.quant.integer import execute_integers
from maqee.runtime import load_quantized_network as load_quantized
from tests.helpers import set_weights
from tests.quant.artifact.damage import CONFIG, WEIGHTS, change_config, change_tensors
from tests.quant.makers import EVERYTHING, give_twin_grids, give_two_groups, let_learn, pictures, quantized

FLOAT_WEIGHTS = {"overrides": (("proj|reduction", Bits(None, 4)), ("fc1", Bits(6, None)))}


def outputs(model: QuantizedModel) -> list[Tensor]:
    result = model.run_everything(pictures())
    return [result] if isinstance(result, Tensor) else list(result.outputs)


def assert_survives(model: QuantizedModel, folder: Path) -> QuantizedModel:
    """Save, load, run, save again: equal answers, equal bytes."""
    save_quantized(model, folder / "one")
    again = load_quantized(folder / "one")
    assert all(torch.equal(a, b) for a, b in zip(outputs(again), outputs(model), strict=True))
    save_quantized(again, folder / "two")
    assert sorted(path.name for path in (folder / "one").iterdir()) == [CONFIG, WEIGHTS]
    for name in (CONFIG, WEIGHTS):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()
    return again


@pytest.mark.parametrize("method", ["rtn", "repq"])
@pytest.mark.parametrize(
    ("preset", "exits", "wanted"),
    [
        ("test-vit", None, {}),
        ("test-vit", "lgvit", EVERYTHING),
        ("test-vit", "cnn-add", {"weight_bits": 3, "act_bits": 8}),
        ("test-deit", "mixer", FLOAT_WEIGHTS),
        ("test-dinov2", "vit-ee", {"weight_bits": 2}),
        ("test-swin", None, FLOAT_WEIGHTS),
        ("test-swin", "lgvit", EVERYTHING),
    ],
)
def test_round_trip(preset: str, exits: str | None, wanted: dict[str, Any], method: str, tmp_path: Path) -> None:
    model = quantized(preset, method, exits, **wanted)
    again = assert_survives(model, tmp_path)
    assert again.settings == model.settings
    assert again.method == method
    assert again.table() == model.table()
    assert isinstance(again.model, EarlyExitModel) == (exits is not None)


@pytest.mark.parametrize("method", methods.names())
def test_every_method(method: str, tmp_path: Path) -> None:
    assert_survives(quantized("test-vit", method), tmp_path)


@pytest.mark.parametrize("change", [give_two_groups, give_twin_grids])
def test_grids_of_other_methods(change: Callable[[QuantizedModel], None], tmp_path: Path) -> None:
    model = quantized()
    change(model)
    again = assert_survives(model, tmp_path)
    assert again.table() == model.table()


def test_zero_points_that_are_no_integers(tmp_path: Path) -> None:
    assert_survives(quantized(integer_zeros=False), tmp_path)


def test_zero_points_outside_of_a_byte(tmp_path: Path) -> None:
    model = quantized()
    state = model.layers["blocks.0.mlp.fc1"].state()
    assert state is not None
    state.zero[0, 0] = -300
    again = assert_survives(model, tmp_path).layers["blocks.0.mlp.fc1"].state()
    assert again is not None
    assert int(again.zero[0, 0]) == -300


def test_a_grid_for_each_channel(tmp_path: Path) -> None:
    model = quantized()
    model.layers["blocks.0.mlp.fc1"].set_input(GridModule(UniformGrid(4, torch.rand(32) + 0.1, torch.full((32,), 7.0))))
    assert_survives(model, tmp_path)


def test_widths_in_use_are_kept_and_no_others(tmp_path: Path) -> None:
    model = quantized(widths=(3, 5, 6))
    set_weights(model, (6, 3, 5, 4))
    again = assert_survives(model, tmp_path)
    assert again.bit_settings.block_weights == (6, 3, 5, 4)
    with pytest.raises(MaqeeError, match="no weights at 4 bits"):
        again.set_bits(1, 4)


def test_what_is_loaded_can_be_executed_and_trained(tmp_path: Path) -> None:
    model = quantized(exits="lgvit")
    again = assert_survives(model, tmp_path)
    with execute_integers(again):
        assert all(torch.equal(a, b) for a, b in zip(outputs(again), outputs(model), strict=True))
    layer = again.layers["backbone.blocks.0.mlp.fc1"]
    state = layer.state()
    assert state is not None
    assert torch.equal(layer.inner.weight, state.values())
    assert layer.inner.weight.requires_grad


def test_float_weights_are_not_stored(tmp_path: Path) -> None:
    save_quantized(quantized(), tmp_path)
    stored = load_file(tmp_path / WEIGHTS)
    assert not [name for name in stored if "blocks.0.mlp.fc1" in name and "weight" in name]
    assert stored["blocks.0.mlp.fc1.codes"].shape == (64 * 32 // 2,)
    assert stored["blocks.0.mlp.fc1.zero"].dtype == torch.uint8


@pytest.mark.slow
def test_size_of_vit_base_at_4_bits(tmp_path: Path) -> None:
    model = quantize(load_backbone("vit-base"), torch.randn(1, 3, 224, 224), "rtn", QuantSettings())
    codes = 12 * 12 * 768**2 // 2  # bytes of the blocks' matrices
    rest = 4 * (86_567_656 - 12 * 12 * 768**2)  # everything else in full precision
    save_quantized(model, tmp_path)
    stored = (tmp_path / WEIGHTS).stat().st_size
    assert codes + rest < stored < 1.02 * (codes + rest)
    assert stored < 0.15 * 4 * 86_567_656  # of the same network in float32


@pytest.mark.parametrize(
    "settings",
    [
        QuantSettings(),
        QuantSettings(weight_bits=3, widths=(4, 5), heads=Bits(8, None), integer_zeros=False),
        QuantSettings(overrides=((r"fc2$", Bits(6, 8)), ("qkv", Bits(None, None))), patch=Bits(8, 8)),
    ],
)
def test_settings_survive_json(settings: QuantSettings) -> None:
    assert settings_from_json(json.loads(to_json(settings_to_json(settings))), "file") == settings


# --- what cannot be saved ---------------------------------------------------------------------------------------------


def test_models_that_are_not_final(tmp_path: Path) -> None:
    model = quantized()
    with model.in_float(), pytest.raises(MaqeeError, match="switched to float"):
        save_quantized(model, tmp_path)
    let_learn(model.layers["blocks.0.mlp.fc1"])
    with pytest.raises(MaqeeError, match="is learning"):
        save_quantized(model, tmp_path)
    model = quantized()
    model.model.half()
    with pytest.raises(MaqeeError, match=r"The model to be saved: key .* expected torch\.float32"):
        save_quantized(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- what cannot be loaded --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    save_quantized(quantized(exits="mlp"), folder)
    return folder


def complaint(folder: Path) -> str:
    with pytest.raises(MaqeeError) as caught:
        load_quantized(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


FC1 = "backbone.blocks.0.mlp.fc1"
Change = Callable[[dict[str, Any]], Any]
BAD_TENSORS: dict[str, tuple[Change, str]] = {
    "missing": (lambda t: t.pop(f"{FC1}.codes"), f"key '{FC1}.codes' is missing"),
    "missing float": (lambda t: t.pop("backbone.norm.weight"), "key 'backbone.norm.weight' is missing"),
    "unexpected": (lambda t: t.update(other=torch.zeros(1)), "unexpected key 'other'"),
    "type": (lambda t: t.update({f"{FC1}.scale": t[f"{FC1}.scale"].double()}), f"key '{FC1}.scale' is torch.float64"),
    "shape": (
        lambda t: t.update({f"{FC1}.codes": t[f"{FC1}.codes"][1:]}),
        f"key '{FC1}.codes' is torch.uint8 of shape",
    ),
    "scale 0": (lambda t: t[f"{FC1}.scale"].zero_(), f"key '{FC1}.scale' holds steps that are not above 0"),
    "nan": (lambda t: t[f"{FC1}.scale"].fill_(float("nan")), f"key '{FC1}.scale' holds numbers that are not finite"),
    "infinite": (lambda t: t["heads.0.norm.bias"].fill_(float("inf")), "key 'heads.0.norm.bias' holds numbers that"),
    "input step": (lambda t: t[f"{FC1}.input.scale"].fill_(-1.0), f"key '{FC1}.input.scale' holds steps"),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_wrong_tensors(name: str, saved: Path, tmp_path: Path) -> None:
    change, expected = BAD_TENSORS[name]
    change_tensors(saved, tmp_path, change)
    message = complaint(tmp_path)
    assert expected in message
    assert str(tmp_path / WEIGHTS) in message


BAD_CONFIGS: dict[str, tuple[Change, str]] = {
    "format": (lambda c: c.update(format="maqee-early-exit"), "format is 'maqee-early-exit'"),
    "version": (lambda c: c.update(version=2), "version 2 is not 1"),
    "missing": (lambda c: c.pop("layers"), "key 'layers': field required"),
    "unknown": (lambda c: c.update(colour=1), "key 'colour': unknown to this maqee"),
    "backbone": (lambda c: c["backbone"].update(dim=-1), "dim must be a whole number"),
    "other network": (lambda c: c["backbone"].update(mlp_dim=65), f"key 'layers.{FC1}.shape' is [64, 32], exp"),
    "no such head": (lambda c: c["exits"][0].update(head="hat"), "Unknown exit head 'hat'"),
    "exit behind the end": (lambda c: c["exits"][-1].update(block=9), "Exit positions"),
    "layer missing": (lambda c: c["layers"].pop(FC1), "is missing"),
    "bits": (lambda c: c["layers"][FC1]["weights"].update(bits=5), f"key '{FC1}.codes' is torch.uint8 of shape"),
    "many bits": (lambda c: c["layers"][FC1]["weights"].update(bits=9), f"key 'layers.{FC1}.weights.bits'"),
    "bits as text": (lambda c: c["layers"][FC1]["weights"].update(bits="4"), "valid integer"),
    "groups": (lambda c: c["layers"][FC1]["weights"].update(groups=2), f"key '{FC1}.scale' is torch.float32"),
    "shape": (lambda c: c["layers"][FC1].update(shape=[]), f"key 'layers.{FC1}.shape'"),
    "input bits": (lambda c: c["layers"][FC1]["input"].update(bits=8), f"key 'layers.{FC1}.input.bits' is 8"),
    "no zero": (lambda c: c["layers"][FC1]["input"].pop("zero"), "a uniform grid, and no other, has a zero point"),
    "kind": (lambda c: c["layers"][FC1]["input"].update(kind="cubic"), "input should be 'uniform'"),
    "settings": (lambda c: c["settings"].update(weight_bits=1), "weight_bits: 1 is impossible, a grid has 2 to 8 bits"),
    "setting": (lambda c: c["settings"].pop("patch"), "key 'settings.patch' is missing or unknown"),
    "setting type": (lambda c: c["settings"].update(widths=[3.5]), "key 'settings.widths.0'"),
    "override": (lambda c: c["settings"].update(overrides=[["(", {"weights": 4, "activations": 4}]]), "expression"),
    "huge override": (
        lambda c: c["settings"].update(overrides=[["a{99999999999999999999}", {"weights": 4, "activations": 4}]]),
        "expression",
    ),
    "other weights": (lambda c: c.update(sha256="0" * 64), "is not the file that was saved with config.json"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_wrong_config(name: str, saved: Path, tmp_path: Path) -> None:
    change, expected = BAD_CONFIGS[name]
    change_config(saved, tmp_path, change)
    assert expected in complaint(tmp_path)


def test_one_flipped_bit_is_noticed(saved: Path, tmp_path: Path) -> None:
    change_config(saved, tmp_path, lambda config: None)
    data = bytearray((tmp_path / WEIGHTS).read_bytes())
    data[-100] ^= 1
    (tmp_path / WEIGHTS).write_bytes(data)
    assert "checksum" in complaint(tmp_path)


def test_files_that_are_not_there(saved: Path, tmp_path: Path) -> None:
    assert "config.json does not exist" in complaint(tmp_path)
    (tmp_path / CONFIG).write_bytes((saved / CONFIG).read_bytes())
    assert "model.safetensors does not exist" in complaint(tmp_path)


def test_other_models_of_ours(tmp_path: Path) -> None:
    EarlyExitModel(load_backbone("test-vit"), (1,), ("mlp",)).save(tmp_path)
    assert "format is 'maqee-early-exit', not 'maqee-quantized'" in complaint(tmp_path)
    save_quantized(quantized(), tmp_path)
    with pytest.raises(MaqeeError, match="no plain backbone"):
        load_backbone(tmp_path)
