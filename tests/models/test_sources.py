"""The same weights give the same model, whichever way they come: live, folder, bare file, pickle, shards, Hub."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from maqee.exits import add_exits
from maqee.models import Backbone, load_backbone
from tests.models.foreign import CLASSIFIERS, assert_parity, images, make

# A bare file does not say how many heads a ViT has, so that these have the customary 64 channels a head, nor its norms'
# epsilon, so that they have the usual one, nor for which image size a Swin was made, so that this one has the customary
# 32 pixels for each pixel of its window.
GUESSABLE: dict[str, dict[str, Any]] = {
    kind: {"hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2, "layer_norm_eps": 1e-6}
    for kind in CLASSIFIERS
} | {"swin": {"image_size": 64, "window_size": 2}}


def _folder(theirs: Any, place: Path) -> Backbone:
    theirs.save_pretrained(place)
    return load_backbone(place)


def _sharded(theirs: Any, place: Path) -> Backbone:
    theirs.save_pretrained(place, max_shard_size="50KB")
    assert len(list(place.glob("model-*.safetensors"))) > 1
    assert not (place / "model.safetensors").exists()
    return load_backbone(str(place))


def _folder_with_pickle(theirs: Any, place: Path) -> Backbone:
    theirs.save_pretrained(place)
    torch.save(load_file(place / "model.safetensors"), place / "pytorch_model.bin")
    (place / "model.safetensors").unlink()
    return load_backbone(place)


def _bare_safetensors(theirs: Any, place: Path) -> Backbone:
    theirs.save_pretrained(place)
    return load_backbone(shutil.move(place / "model.safetensors", place.parent / "weights.safetensors"))


def _live_names(theirs: Any, place: Path) -> Backbone:
    save_file({name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}, place / "w.safetensors")
    return load_backbone(place / "w.safetensors")


def _pickle(wrap: Callable[[dict[str, Any]], object], suffix: str = ".pth") -> Callable[[Any, Path], Backbone]:
    def load(theirs: Any, place: Path) -> Backbone:
        torch.save(wrap(theirs.state_dict()), place / f"weights{suffix}")
        return load_backbone(place / f"weights{suffix}")

    return load


SOURCES: dict[str, Callable[[Any, Path], Backbone]] = {
    "live module": lambda theirs, _: load_backbone(theirs),
    "folder": _folder,
    "folder with shards": _sharded,
    "folder with a pickle": _folder_with_pickle,
    "bare .safetensors": _bare_safetensors,
    "bare .safetensors with the names of a live module": _live_names,
    ".pth": _pickle(lambda state: state),
    ".pt": _pickle(lambda state: state, ".pt"),
    ".pth under state_dict": _pickle(lambda state: {"state_dict": state, "epoch": 3}),
    ".pth under model": _pickle(lambda state: {"model": state, "optimizer": {"lr": 0.1}}),
    ".pth of a compiled, distributed model": _pickle(
        lambda state: {f"module._orig_mod.{name}": tensor for name, tensor in state.items()}
    ),
    ".pth under state_dict, then model": _pickle(lambda state: {"state_dict": {"model": state}}),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("source", SOURCES)
def test_parity_from_every_source(source: str, kind: str, tmp_path: Path) -> None:
    theirs = make(kind, **GUESSABLE[kind])
    ours = SOURCES[source](theirs, tmp_path)
    assert_parity(ours, theirs, images(64 if kind == "swin" else 32))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_folder_of_an_unusual_shape(kind: str, tmp_path: Path) -> None:
    """Four heads of eight channels cannot be guessed: the folder's config.json says so."""
    theirs = make(kind)
    theirs.save_pretrained(tmp_path)
    assert_parity(load_backbone(tmp_path), theirs, images(32))


def test_a_weights_file_uses_the_config_beside_it(tmp_path: Path) -> None:
    theirs = make("vit", hidden_size=48, num_attention_heads=3)  # heads that could not be guessed
    theirs.save_pretrained(tmp_path)
    assert_parity(load_backbone(tmp_path / "model.safetensors"), theirs, images(32))


def test_the_backbone_of_an_early_exit_model(tmp_path: Path) -> None:
    model = add_exits(load_backbone("test-vit"), "lgvit")
    model.save(tmp_path)
    again = load_backbone(tmp_path)
    for name, tensor in model.backbone.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_half_precision_file_loads_as_full(tmp_path: Path) -> None:
    theirs = make("vit", **GUESSABLE["vit"]).half()
    theirs.save_pretrained(tmp_path)
    ours = load_backbone(tmp_path)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert_parity(ours, theirs.float(), images(32))


def test_hub_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = make("vit")
    theirs.save_pretrained(tmp_path)
    asked: list[tuple[str, list[str]]] = []

    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    ours = load_backbone("google/vit-tiny", num_classes=5)
    assert_parity(ours, theirs, images(32))
    (name, patterns) = asked[0]
    assert name == "google/vit-tiny"
    assert {"config.json", "preprocessor_config.json", "model.safetensors"} <= set(patterns)
    assert not any(pattern.startswith("*") for pattern in patterns)  # nothing else is worth the download


def test_local_folder_comes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("vit").save_pretrained(tmp_path / "google" / "vit-tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("the Hub was asked"))
    assert load_backbone("google/vit-tiny").config.num_classes == 5


def test_live_module_is_copied_not_shared() -> None:
    theirs = make("vit")
    ours = load_backbone(theirs)
    before = ours(images(32))
    nn.init.zeros_(theirs.classifier.weight)
    assert torch.equal(ours(images(32)), before)


def test_shards_are_found_through_the_index(tmp_path: Path) -> None:
    """A shard that the index does not list is not read."""
    theirs = make("vit", **GUESSABLE["vit"])
    theirs.save_pretrained(tmp_path, max_shard_size="50KB")
    save_file({"stray": torch.zeros(1)}, tmp_path / "model-99999-of-99999.safetensors")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert "stray" not in index["weight_map"]
    assert_parity(load_backbone(tmp_path), theirs, images(32))
