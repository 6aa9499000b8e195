"""Real published weights, where they are beside the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn

from maqee.models import ViT, load_backbone
from tests.helpers import max_difference
from tests.models.foreign import TOLERANCE, assert_same_blocks, images, watch_ours, watch_theirs


def _as_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm's names turned into those of a live model of transformers, by hand."""
    renamed = {}
    for name, tensor in state.items():
        if ".qkv." in name:
            for part, piece in zip("qkv", tensor.chunk(3), strict=True):
                renamed[name.replace("blocks", "vit.layers").replace("attn.qkv", f"attention.{part}_proj")] = piece
            continue
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours) if name.startswith(theirs) or ours.startswith(".") else name
        renamed[name] = tensor
    return renamed


_NAMES = (
    ("cls_token", "vit.embeddings.cls_token"),
    ("pos_embed", "vit.embeddings.position_embeddings"),
    ("patch_embed.proj", "vit.embeddings.patch_embeddings.projection"),
    ("norm.", "vit.layernorm."),
    ("head.", "classifier."),
    ("blocks.", "vit.layers."),
    (".attn.proj.", ".attention.o_proj."),
    (".norm1.", ".layernorm_before."),
    (".norm2.", ".layernorm_after."),
)


def test_timm_vit_tiny_against_transformers(shared_weights: Path) -> None:
    path = shared_weights / "vit_tiny_patch16_224_augreg_in1k_fp16.safetensors"
    shape: dict[str, Any] = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "num_labels": 1000}
    theirs: nn.Module = transformers.ViTForImageClassification(transformers.ViTConfig(**shape, layer_norm_eps=1e-6))
    theirs.eval()
    theirs.load_state_dict(_as_transformers(load_file(path)))
    ours = load_backbone(path).double()
    assert isinstance(ours, ViT)
    assert (ours.config.depth, ours.config.heads, ours.config.image_size) == (12, 3, (224, 224))
    assert sum(parameter.numel() for parameter in ours.parameters()) == 5_717_416
    # In double precision: some of its activations are in the hundreds, and single precision rounds them differently.
    expected, their_blocks = watch_theirs(theirs.double(), images(224).double())
    logits, our_blocks = watch_ours(ours, images(224).double())
    assert_same_blocks(our_blocks, their_blocks)
    assert max_difference(logits, expected.logits) <= TOLERANCE


def test_dinov2_small_against_transformers(shared_weights: Path, tmp_path: Path) -> None:
    path = shared_weights / "dinov2_vits14_fp16.safetensors"
    config = transformers.Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14)
    config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").symlink_to(path)
    theirs: nn.Module = transformers.Dinov2Model.from_pretrained(tmp_path, dtype=torch.float32)
    ours = load_backbone(path, image_size=126)
    assert isinstance(ours, ViT)
    assert (ours.config.heads, ours.config.layer_scale, ours.config.num_classes) == (6, True, 0)
    expected, their_blocks = watch_theirs(theirs, images(126))
    _, our_blocks = watch_ours(ours, images(126))
    assert_same_blocks(our_blocks, their_blocks)
    assert max_difference(ours.norm(our_blocks[-1]), expected.last_hidden_state) <= TOLERANCE
