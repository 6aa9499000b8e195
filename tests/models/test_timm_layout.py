"""Checkpoints under timm's names give our model back, bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from maqee.models import Backbone, ViTConfig, load_backbone
from maqee.models.load import build_backbone
from tests.helpers import randomize
from tests.models.foreign import images
from tests.models.timm_names import timm_state

KINDS = [("test-vit", False), ("test-deit", False), ("test-dinov2", False), ("test-swin", False), ("test-swin", True)]
PRETRAINED: dict[str, Any] = {
    "input_size": [3, 32, 32],
    "crop_pct": 0.9,
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.3, 0.1],
}


def random_backbone(kind: str) -> Backbone:
    model = randomize(load_backbone(kind), std=0.4)
    assert isinstance(model, Backbone)
    return model


def assert_same(one: Backbone, other: Backbone) -> None:
    """The same shape, the same bits, the same answers; timm resizes positions in its own way."""
    config = other.config
    assert one.config == (replace(config, position_resize="antialias") if isinstance(config, ViTConfig) else config)
    theirs = other.state_dict()
    assert list(one.state_dict()) == list(theirs)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name
    pixels = images(*one.config.image_size)
    assert torch.equal(one(pixels), other(pixels))


def write_timm_folder(folder: Path, state: dict[str, Tensor], **arguments: Any) -> Path:
    """What timm's copies on the Hub look like."""
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    values = {"architecture": "some", "num_classes": 10, "pretrained_cfg": PRETRAINED, "model_args": arguments}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize(("kind", "old"), KINDS)
def test_folder(kind: str, old: bool, tmp_path: Path) -> None:
    ours = random_backbone(kind)
    arguments = {} if "swin" in kind else {"num_heads": 2}
    loaded = load_backbone(write_timm_folder(tmp_path, timm_state(ours, old), **arguments))
    assert_same(loaded, ours)
    assert loaded.preprocessing.mean == (0.5, 0.4, 0.3)
    assert loaded.preprocessing.std == (0.2, 0.3, 0.1)
    assert loaded.preprocessing.resize == 35  # 32 / 0.9, rounded down


@pytest.mark.parametrize(("kind", "old"), KINDS)
@pytest.mark.parametrize("prefix", ["", "module."])
def test_pickle(kind: str, old: bool, prefix: str, tmp_path: Path) -> None:
    """The original releases of DeiT, DINOv2 and Swin, and checkpoints of distributed training."""
    ours = random_backbone(kind)
    state = {prefix + name: tensor for name, tensor in timm_state(ours, old).items()}
    torch.save({"model": state}, tmp_path / "weights.pth")
    loaded = load_backbone(tmp_path / "weights.pth", image_size=32)
    own = ours.state_dict()
    assert all(torch.equal(tensor, own[name]) for name, tensor in loaded.state_dict().items())
    assert loaded.state_dict().keys() == own.keys()


def test_bare_file_with_64_channels_a_head(tmp_path: Path) -> None:
    config = ViTConfig(image_size=(32, 32), patch_size=16, dim=192, depth=2, heads=3, mlp_dim=64, num_classes=4)
    ours = build_backbone(config)
    save_file(timm_state(ours), tmp_path / "weights.safetensors")
    assert_same(load_backbone(tmp_path / "weights.safetensors"), ours)


@pytest.mark.parametrize("kind", ["test-vit", "test-dinov2"])
def test_wrapped_in_a_backbone_with_a_mask_token(kind: str, tmp_path: Path) -> None:
    """DINO's and DINOv2's own checkpoints: the teacher's backbone, no classifier."""
    ours = random_backbone(kind)
    state = {f"backbone.{name}": tensor for name, tensor in timm_state(ours).items() if not name.startswith("head")}
    state["backbone.mask_token"] = torch.zeros(1, 32)
    torch.save({"teacher": state, "student": {}}, tmp_path / "weights.pth")
    loaded = load_backbone(tmp_path / "weights.pth")
    own = ours.state_dict()
    assert all(torch.equal(tensor, own[name]) for name, tensor in loaded.state_dict().items())
    assert loaded.config.num_classes == 0
    assert loaded(images(32)).shape == (2, 64 if kind == "test-dinov2" else 32)


def test_old_and_new_swin_really_differ() -> None:
    """Guards the tests above: the two styles put the mergings at different places."""
    ours = random_backbone("test-swin")
    new, old = (
        sorted({key.split(".")[1] for key in timm_state(ours, style) if "downsample" in key}) for style in (False, True)
    )
    assert (new, old) == (["1", "2"], ["0", "1"])


def test_non_square_positions_need_the_image_size(tmp_path: Path) -> None:
    config = ViTConfig(image_size=(32, 64), patch_size=16, dim=64, depth=1, heads=1, mlp_dim=64, num_classes=4)
    ours = build_backbone(config)
    folder = write_timm_folder(tmp_path, timm_state(ours), img_size=[32, 64])
    assert_same(load_backbone(folder), ours)
