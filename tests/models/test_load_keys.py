"""Whatever key of a checkpoint is lost, added or misshapen: the message names it as the file does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from maqee.models import BackboneConfig, SwinConfig, ViTConfig, load_backbone
from maqee.models.load import build_backbone
from tests.models.complaints import complaint
from tests.models.foreign import make
from tests.models.timm_modules import VisionTransformer
from tests.models.timm_names import timm_state

State = dict[str, Tensor]
TRANSFORMERS = ("vit", "vit-bare", "deit", "deit-distilled", "dinov2", "dinov2-registers", "swin")
VARIANTS: dict[str, dict[str, Any]] = {
    "registers": {"reg_tokens": 4},
    "clip": {"pre_norm": True},
    "mean": {"global_pool": "avg"},
    "deit3": {"no_embed_class": True, "init_values": 1.0},
}
TIMM = (
    "timm vit",
    "timm deit",
    "timm dinov2",
    "timm swin",
    "timm-old swin",
    "ddp vit",
    *(f"variant {name}" for name in VARIANTS),
)
_UNUSED = ("mask_token", "pooler.", "relative_position_index", "attn_mask")
# These decide the shape of the model, so that a change makes everything else look wrong.
_DECISIVE = (
    "projection.weight",
    "patch_embed.proj.weight",
    "classifier.weight",
    "head.weight",
    "head.fc.weight",
    ".0.intermediate.dense.weight",
    ".0.mlp.fc1.weight",
)
_VIT = ViTConfig(image_size=(16, 16), patch_size=8, dim=8, depth=2, heads=2, mlp_dim=12, num_classes=3)
_SHAPES: dict[str, BackboneConfig] = {
    "vit": _VIT,
    "deit": replace(_VIT, distillation_token=True, readout="class+distillation"),
    "dinov2": replace(_VIT, layer_scale=True, readout="class+mean"),
    "swin": SwinConfig(image_size=(16, 16), patch_size=2, dim=4, depths=(1, 2, 1), heads=(1, 2, 2), window=2),
}


def _state(layout: str, folder: Path) -> State:
    library, _, kind = layout.rpartition(" ")
    if not library:
        small = {"depths": [1, 2]} if kind == "swin" else {"num_hidden_layers": 2}
        make(kind, **small).save_pretrained(folder)
        return load_file(folder / "model.safetensors")
    if library == "variant":
        return VisionTransformer(**VARIANTS[kind]).state_dict()
    state = timm_state(build_backbone(_SHAPES[kind]), old=library == "timm-old")
    return {f"module.{key}": tensor for key, tensor in state.items()} if library == "ddp" else state


@pytest.fixture(params=(*TRANSFORMERS, *TIMM))
def good(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[State, Path]:
    """A state dict in one library's names and a file to write it to."""
    state = _state(request.param, tmp_path)
    path = tmp_path / "weights.safetensors"
    return {key: tensor.contiguous() for key, tensor in state.items()}, path


def _used(state: State) -> list[str]:
    return [key for key in state if not any(word in key for word in _UNUSED)]


@pytest.mark.slow
def test_every_missing_key_is_named(good: tuple[State, Path]) -> None:
    state, path = good
    for key in _used(state):
        save_file({name: tensor for name, tensor in state.items() if name != key}, path)
        message = complaint(path)
        assert str(path) in message
        if "distillation_token" in key or "dist_token" in key or key == "reg_token":
            continue  # without it, the position embedding is the first that does not fit
        assert f"key {key!r}" in message
        assert "missing" in message


def test_misshapen_keys_are_named(good: tuple[State, Path]) -> None:
    state, path = good
    for number, key in enumerate(_used(state)[::2]):
        tensor = state[key]
        wrong = [torch.cat([tensor, tensor[:1]]), tensor.reshape(-1)[0], tensor[None], tensor.new_zeros(0)][number % 4]
        save_file({**state, key: wrong.clone()}, path)
        message = complaint(path)
        assert str(path) in message
        if key.endswith(_DECISIVE) and wrong.ndim == tensor.ndim:
            continue
        assert f"key {key!r}" in message
        assert str(tuple(wrong.shape)) in message


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_shape_of_a_part_is_told_as_the_file_has_it(part: str, tmp_path: Path) -> None:
    """Ours are fused: the message must not speak of three times the rows."""
    state, path = _state("vit", tmp_path), tmp_path / "weights.safetensors"
    key = f"vit.encoder.layer.1.attention.attention.{part}.weight"
    save_file({**state, key: torch.zeros(31, 32)}, path)
    assert f"key {key!r} has shape (31, 32), expected (32, 32)" in complaint(path)
    parts = {key.replace(part, other): torch.zeros(31, 32) for other in ("query", "key", "value")}
    save_file({**state, **parts}, path)
    assert "query.weight' has shape (31, 32), expected (32, 32)" in complaint(path)


@pytest.mark.parametrize("extra", ["layers.0.extra.weight", "something", "blocks.0.attn.q_norm.weight"])
def test_unexpected_key_is_named(good: tuple[State, Path], extra: str) -> None:
    state, path = good
    save_file({**state, extra: torch.zeros(3)}, path)
    message = complaint(path)
    assert str(path) in message
    assert f"unexpected key {extra!r}" in message


def test_unused_keys_may_be_missing(good: tuple[State, Path]) -> None:
    state, path = good
    save_file({key: state[key] for key in _used(state)}, path)
    assert load_backbone(path).depth >= 2


def test_lost_block_is_named(good: tuple[State, Path]) -> None:
    """A hole in the numbering, however far the next number is, is the missing block."""
    state, path = good
    moved = {
        key if "downsample" in key else key.replace(".1.", ".987654321.", 1): tensor for key, tensor in state.items()
    }
    save_file(moved, path)
    message = complaint(path)
    assert str(path) in message
    assert ".1." in message
    assert "missing" in message


FOREIGN = {
    "resnet": ["conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "fc.weight"],
    "convnext": ["stem.0.weight", "stages.0.blocks.0.conv_dw.weight", "head.fc.weight"],
    "bert": ["embeddings.word_embeddings.weight", "encoder.layer.0.attention.self.query.weight"],
    "nothing": [],
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_another_architecture(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({key: torch.zeros(2) for key in FOREIGN[kind]}, path)
    message = complaint(path)
    assert str(path) in message
    assert "known architecture" in message
    assert "ViT" in message
    if FOREIGN[kind]:
        assert repr(sorted(FOREIGN[kind])[0]) in message


def test_two_names_for_one_tensor(tmp_path: Path) -> None:
    state = dict(make("vit").state_dict())
    save_file({**state, "layernorm.weight": torch.zeros(32)}, tmp_path / "weights.safetensors")
    message = complaint(tmp_path / "weights.safetensors")
    assert "'layernorm.weight'" in message
    assert "'vit.layernorm.weight'" in message
