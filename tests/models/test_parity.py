"""ViT, DeiT and DINOv2 of ours compute what those of transformers compute, block by block."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from maqee.models import ViT, load_backbone
from tests.helpers import check_every_tensor_matters, max_difference
from tests.models.foreign import (
    CLASSIFIERS,
    TOLERANCE,
    assert_parity,
    assert_same_blocks,
    images,
    make,
    watch_ours,
    watch_theirs,
)


@pytest.mark.parametrize("kind", ["vit", "deit", "deit-distilled", "dinov2", "dinov2-registers"])
@pytest.mark.parametrize("changes", [{}, {"qkv_bias": False}, {"num_channels": 1}, {"patch_size": 4}], ids=str)
def test_logits_and_every_block_agree(kind: str, changes: dict[str, int]) -> None:
    theirs = make(kind, **changes)
    assert_parity(load_backbone(theirs), theirs, images(32, channels=changes.get("num_channels", 3)))


@settings(max_examples=12)
@given(
    kind=st.sampled_from(["vit", "deit"]),  # DINOv2 of transformers takes square images only
    heads=st.integers(1, 4),
    width=st.sampled_from([4, 6, 16]),
    depth=st.integers(1, 4),
    patch=st.sampled_from([2, 4, 5]),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
)
def test_any_shape_agrees(kind: str, heads: int, width: int, depth: int, patch: int, rows: int, columns: int) -> None:
    size = [rows * patch, columns * patch]
    theirs = make(
        kind,
        image_size=size,
        patch_size=patch,
        hidden_size=heads * width,
        num_attention_heads=heads,
        num_hidden_layers=depth,
    )
    ours = load_backbone(theirs)
    assert isinstance(ours, ViT)
    assert ours.config.image_size == tuple(size)
    assert_parity(ours, theirs, images(*size))


@pytest.mark.parametrize("kind", ["vit-bare", "dinov2-bare"])
def test_model_without_classifier_gets_a_new_one_and_keeps_its_tokens(kind: str) -> None:
    theirs = make(kind)
    ours = load_backbone(theirs, num_classes=7)
    expected, their_blocks = watch_theirs(theirs, images(32))
    logits, our_blocks = watch_ours(ours, images(32))
    assert_same_blocks(our_blocks, their_blocks)
    assert max_difference(ours.norm(our_blocks[-1]), expected.last_hidden_state) <= TOLERANCE
    assert logits.shape == (2, 7)


def test_model_without_classifier_gives_features() -> None:
    theirs = make("vit-bare")
    expected, _ = watch_theirs(theirs, images(32))
    assert max_difference(load_backbone(theirs)(images(32)), expected.last_hidden_state[:, 0]) <= TOLERANCE


def test_distilled_model_averages_its_two_classifiers() -> None:
    theirs = make("deit-distilled")
    expected, _ = watch_theirs(theirs, images(32))
    logits = load_backbone(theirs)(images(32))
    assert max_difference(expected.cls_logits, expected.distillation_logits) > 0.1  # else the test says nothing
    assert max_difference(logits, (expected.cls_logits + expected.distillation_logits) / 2) <= TOLERANCE


@pytest.mark.parametrize("kind", ["vit", "deit", "dinov2", "dinov2-registers"])
def test_epsilon_of_the_norms_is_read(kind: str) -> None:
    theirs = make(kind, layer_norm_eps=0.1)
    assert_parity(load_backbone(theirs), theirs, images(32))


def _silent(name: str) -> bool:
    """Tensors that cannot change a classifier's output: a key's bias cancels in the softmax, masks are for training."""
    return "mask_token" in name or name.endswith(("k_proj.bias", "key.bias"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_every_tensor_takes_part(kind: str) -> None:
    """The parity above proves something only if no tensor could be lost unseen."""
    theirs: nn.Module = make(kind, **({} if kind == "swin" else {"num_hidden_layers": 2}))
    check_every_tensor_matters(theirs, _everything, _silent, 100 * TOLERANCE)


def _everything(theirs: nn.Module) -> Tensor:
    """All that the parity tests compare, in one row."""
    logits, blocks = watch_ours(load_backbone(theirs), images(32))
    return torch.cat([tensor.flatten() for tensor in (logits, *blocks)])
