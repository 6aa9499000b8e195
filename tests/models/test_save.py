"""What is saved is what is loaded, to the bit, and saving twice gives the same bytes."""

from __future__ import annotations

import json
import stat
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maqee.models import BackboneConfig, Preprocessing, SwinConfig, ViT, ViTConfig, load_backbone, save_backbone
from maqee.models.config import ReadoutKind, config_from_json, config_to_json
from maqee.models.load import build_backbone
from tests.helpers import randomize
from tests.models.foreign import images, make

MINIATURES = ["test-vit", "test-deit", "test-dinov2", "test-swin"]
_SIDE = st.integers(1, 3)


@st.composite
def vit_configs(draw: st.DrawFn) -> ViTConfig:
    patch, heads, two = draw(_SIDE), draw(_SIDE), draw(st.booleans())
    kinds: list[ReadoutKind] = ["class", "class+mean", "mean"]
    readout = draw(st.sampled_from([*kinds, "class+distillation"] if two else kinds))
    return ViTConfig(
        image_size=(patch * draw(_SIDE), patch * draw(_SIDE)),
        patch_size=patch,
        channels=draw(_SIDE),
        dim=heads * draw(_SIDE),
        depth=draw(_SIDE),
        heads=heads,
        mlp_dim=draw(_SIDE),
        num_classes=draw(st.integers(0, 3)),
        distillation_token=two,
        readout=readout,
        layer_scale=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        norm_eps=draw(st.sampled_from([1e-12, 1e-6, 1e-5])),
        registers=draw(st.integers(0, 2)),
        pre_norm=draw(st.booleans()),
        pooled_norm=readout == "mean" and draw(st.booleans()),
        position_resize=draw(st.sampled_from(["plain", "antialias", "offset"])),
    )


@st.composite
def swin_configs(draw: st.DrawFn) -> SwinConfig:
    stages = draw(st.integers(1, 2))
    return SwinConfig(
        image_size=(draw(st.integers(1, 9)), draw(st.integers(1, 9))),
        patch_size=draw(_SIDE),
        channels=draw(_SIDE),
        dim=2 * draw(_SIDE),
        depths=tuple(draw(_SIDE) for _ in range(stages)),
        heads=tuple(draw(st.sampled_from([1, 2])) for _ in range(stages)),
        window=draw(_SIDE),
        mlp_ratio=draw(st.sampled_from([1.0, 2.5, 4.0])),
        num_classes=draw(st.integers(0, 3)),
        qkv_bias=draw(st.booleans()),
    )


@given(config=st.one_of(vit_configs(), swin_configs()))
def test_any_configuration_survives_json(config: BackboneConfig) -> None:
    assert config_from_json(json.loads(json.dumps(config_to_json(config))), "file") == config


@settings(max_examples=20)
@given(config=st.one_of(vit_configs(), swin_configs()))
def test_any_model_survives_the_disk(config: BackboneConfig) -> None:
    model = randomize(build_backbone(config))
    assert isinstance(model, (type(build_backbone(config))))
    with tempfile.TemporaryDirectory() as name:
        save_backbone(model, Path(name))
        again = load_backbone(name)
    assert again.config == config
    assert again.preprocessing == model.preprocessing
    own = model.state_dict()
    assert again.state_dict().keys() == own.keys()
    assert all(torch.equal(tensor, own[key]) for key, tensor in again.state_dict().items())


@pytest.mark.parametrize("preset", MINIATURES)
def test_round_trip_gives_the_same_answers_and_the_same_bytes(preset: str, tmp_path: Path) -> None:
    model = load_backbone(preset, num_classes=3)
    randomize(model)
    save_backbone(model, tmp_path / "one")
    again = load_backbone(tmp_path / "one")
    assert torch.equal(again(images(32)), model(images(32)))
    save_backbone(again, tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["config.json", "model.safetensors"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_saving_over_an_old_model_replaces_it(tmp_path: Path) -> None:
    save_backbone(load_backbone("test-swin"), tmp_path)
    save_backbone(load_backbone("test-vit"), tmp_path)
    assert isinstance(load_backbone(tmp_path), ViT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert stat.S_IMODE((tmp_path / "model.safetensors").stat().st_mode) & 0o444 == 0o444


def test_a_converted_model_is_saved_in_our_format(tmp_path: Path) -> None:
    theirs = make("deit-distilled")
    ours = load_backbone(theirs)
    save_backbone(ours, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["format"] == "maqee-backbone"
    assert torch.equal(load_backbone(tmp_path)(images(32)), ours(images(32)))


def test_preprocessing_is_saved(tmp_path: Path) -> None:
    wanted = Preprocessing(image_size=(32, 32), resize=40, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    model = build_backbone(ViTConfig(image_size=(32, 32), dim=8, depth=1, heads=1, mlp_dim=8), wanted)
    save_backbone(model, tmp_path)
    assert load_backbone(tmp_path).preprocessing == wanted
    assert load_backbone(tmp_path, image_size=64).preprocessing.resize == 80
