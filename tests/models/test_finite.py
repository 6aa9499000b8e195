"""Weights that are no numbers are refused, whoever wrote them, with the name that the file gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone, save_backbone
from maqee.models.finite import is_finite
from tests.models.complaints import WEIGHTS, complaint
from tests.models.foreign import make
from tests.models.timm_modules import VisionTransformer

VALUES = [float("nan"), float("inf"), float("-inf")]


def spoil(path: Path, key: str, value: float) -> None:
    """Write one bad number at the end of a tensor."""
    state = load_file(path)
    state[key].view(-1)[-1] = value
    save_file(state, path)


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("part", ["query", "key", "value", "output.dense"])
def test_folder_of_transformers(tmp_path: Path, part: str, value: float) -> None:
    make("vit").save_pretrained(tmp_path)
    place = "attention.output.dense" if part == "output.dense" else f"attention.attention.{part}"
    key = f"vit.encoder.layer.1.{place}.weight"
    spoil(tmp_path / WEIGHTS, key, value)
    assert complaint(tmp_path) == f"{tmp_path / WEIGHTS}: key {key!r} holds NaN or infinite values."


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_folder_of_ours(tmp_path: Path, value: float) -> None:
    save_backbone(load_backbone("test-swin"), tmp_path)
    spoil(tmp_path / WEIGHTS, "blocks.1.attn.qkv.weight", value)
    assert "key 'blocks.1.attn.qkv.weight' holds NaN or infinite values" in complaint(tmp_path)


@pytest.mark.parametrize("key", ["backbone.norm.bias", "heads.0.norm.weight"])
def test_folder_of_a_model_with_exits(tmp_path: Path, key: str) -> None:
    add_exits(load_backbone("test-vit"), "lgvit").save(tmp_path)
    spoil(tmp_path / WEIGHTS, key, float("nan"))
    with pytest.raises(MaqeeError, match=f"{WEIGHTS}: key '{key}' holds NaN or infinite values"):
        EarlyExitModel.load(tmp_path)
    if key.startswith("backbone."):
        assert f"key {key!r} holds NaN" in complaint(tmp_path)


def test_live_module() -> None:
    theirs = VisionTransformer()
    with torch.no_grad():
        theirs.blocks[1].get_parameter("mlp.fc1.weight")[3, 4] = float("nan")
    assert complaint(theirs) == "VisionTransformer: key 'blocks.1.mlp.fc1.weight' holds NaN or infinite values."


def test_tensors_that_are_not_needed_may_hold_anything(tmp_path: Path) -> None:
    make("dinov2").save_pretrained(tmp_path)
    spoil(tmp_path / WEIGHTS, "dinov2.embeddings.mask_token", float("nan"))
    assert load_backbone(tmp_path).depth == 3


@given(
    place=st.integers(0, 99),
    value=st.sampled_from([*VALUES, 0.0, 1.0]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2]),
)
def test_one_value_is_found_anywhere(place: int, value: float, dtype: torch.dtype) -> None:
    tensor = torch.zeros(100)
    tensor[place] = value
    assert is_finite(tensor.view(10, 10).to(dtype)) == (value in (0.0, 1.0))


def test_numbers_too_large_for_what_they_become() -> None:
    assert not is_finite(torch.tensor([1e300], dtype=torch.float64))
    assert is_finite(torch.tensor([3e38]))


def test_tensors_without_values() -> None:
    assert is_finite(torch.zeros(0))
    assert is_finite(torch.zeros(3, device="meta"))
    assert is_finite(torch.tensor([1, 2]))
