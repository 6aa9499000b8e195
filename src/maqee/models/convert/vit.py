"""Layouts of ViT, DeiT and DINOv2 in transformers, timm and the original DINOv2 release."""

from __future__ import annotations

import math

from maqee.errors import MaqeeError
from maqee.models.config import ReadoutKind, ViTConfig
from maqee.models.convert.layout import Hints, Layout, State

_TRANSFORMERS_NAMES = (
    ("embeddings.cls_token", "embedding.class_token"),
    ("embeddings.distillation_token", "embedding.distillation_token"),
    ("embeddings.position_embeddings", "embedding.position"),
    ("embeddings.patch_embeddings.projection", "embedding.patch"),
    ("layernorm", "norm"),
    ("classifier", "head.linear"),
    ("cls_classifier", "head.linear"),
    ("distillation_classifier", "head.distillation"),
)


def _encoder_names(layer: str) -> tuple[tuple[str, str], ...]:
    """Block names of transformers under `layer`, in the spelling of files (and version 4) and of version 5."""
    pairs = (
        ("attention.attention.query", "attn.q"),
        ("attention.attention.key", "attn.k"),
        ("attention.attention.value", "attn.v"),
        ("attention.output.dense", "attn.proj"),
        ("attention.q_proj", "attn.q"),
        ("attention.k_proj", "attn.k"),
        ("attention.v_proj", "attn.v"),
        ("attention.o_proj", "attn.proj"),
        ("layernorm_before", "norm1"),
        ("layernorm_after", "norm2"),
        ("norm1", "norm1"),
        ("norm2", "norm2"),
        ("intermediate.dense", "mlp.fc1"),
        ("output.dense", "mlp.fc2"),
        ("mlp.fc1", "mlp.fc1"),
        ("mlp.fc2", "mlp.fc2"),
        ("layer_scale1.lambda1", "scale1.gamma"),
        ("layer_scale2.lambda1", "scale2.gamma"),
    )
    return tuple((f"{layer}.*.{theirs}", f"blocks.*.{ours}") for theirs, ours in pairs)


_TIMM_NAMES = (
    ("cls_token", "embedding.class_token"),
    ("dist_token", "embedding.distillation_token"),
    ("pos_embed", "embedding.position"),
    ("patch_embed.proj", "embedding.patch"),
    ("blocks.*.norm1", "blocks.*.norm1"),
    ("blocks.*.attn.qkv", "blocks.*.attn.qkv"),
    ("blocks.*.attn.proj", "blocks.*.attn.proj"),
    ("blocks.*.ls1.gamma", "blocks.*.scale1.gamma"),
    ("blocks.*.norm2", "blocks.*.norm2"),
    ("blocks.*.mlp.fc1", "blocks.*.mlp.fc1"),
    ("blocks.*.mlp.fc2", "blocks.*.mlp.fc2"),
    ("blocks.*.ls2.gamma", "blocks.*.scale2.gamma"),
    ("norm", "norm"),
    ("head", "head.linear"),
    ("head_dist", "head.distillation"),
)


def _infer(state: State, hints: Hints) -> ViTConfig:
    """Shapes tell nearly everything; the number of heads and the norm's epsilon come from hints or from custom."""
    projection = state["embedding.patch.weight"]  # (dim, channels, patch, patch)
    dim, channels, patch_size = projection.shape[0], projection.shape[1], projection.shape[2]
    depth = 1 + max((int(name.split(".")[1]) for name in state if name.startswith("blocks.")), default=-1)
    if depth == 0:
        raise KeyError("blocks.0.norm1.weight")
    distillation_token = "embedding.distillation_token" in state
    patches = state["embedding.position"].shape[1] - (2 if distillation_token else 1)
    readout, num_classes = _infer_readout(state, dim)
    return ViTConfig(
        image_size=_infer_image_size(patches, patch_size, hints),
        patch_size=patch_size,
        channels=channels,
        dim=dim,
        depth=depth,
        heads=int(hints.get("num_attention_heads") or hints.get("num_heads") or max(1, dim // 64)),
        mlp_dim=state["blocks.0.mlp.fc1.weight"].shape[0],
        num_classes=num_classes,
        readout=readout,
        distillation_token=distillation_token,
        layer_scale="blocks.0.scale1.gamma" in state,
        qkv_bias="blocks.0.attn.qkv.bias" in state,
        norm_eps=float(hints.get("layer_norm_eps", 1e-6)),
    )


def _infer_image_size(patches: int, patch_size: int, hints: Hints) -> tuple[int, int]:
    """From the position grid, which is square unless the config file says otherwise."""
    stated = hints.get("image_size")
    if isinstance(stated, list | tuple) and (stated[0] // patch_size) * (stated[1] // patch_size) == patches:
        return int(stated[0]), int(stated[1])
    side = math.isqrt(patches)
    if side * side != patches:
        raise MaqeeError(f"The position embedding has {patches} patches, which is no square: state image_size.")
    return side * patch_size, side * patch_size


def _infer_readout(state: State, dim: int) -> tuple[ReadoutKind, int]:
    """The classifier's shape tells what it reads; DINOv2 without one gets the usual class + mean."""
    classifier = state.get("head.linear.weight")
    if classifier is None:
        return ("class+mean" if "blocks.0.scale1.gamma" in state else "class"), 0
    if "head.distillation.weight" in state:
        return "class+distillation", classifier.shape[0]
    return ("class+mean" if classifier.shape[1] == 2 * dim else "class"), classifier.shape[0]


VIT_LAYOUTS = (
    Layout(
        name="transformers ViT/DeiT",
        marker="encoder.layer.*.layernorm_before",
        prefixes=("vit.", "deit."),
        names=(*_TRANSFORMERS_NAMES, *_encoder_names("encoder.layer")),
        ignored=("pooler.dense", "embeddings.mask_token"),
        infer=_infer,
    ),
    Layout(
        name="transformers ViT/DeiT",
        marker="layers.*.layernorm_before",
        prefixes=("vit.", "deit."),
        names=(*_TRANSFORMERS_NAMES, *_encoder_names("layers")),
        ignored=("pooler.dense", "embeddings.mask_token"),
        infer=_infer,
    ),
    Layout(
        name="transformers DINOv2",
        marker="encoder.layer.*.norm1",
        prefixes=("dinov2.",),
        names=(*_TRANSFORMERS_NAMES, *_encoder_names("encoder.layer")),
        ignored=("embeddings.mask_token",),
        infer=_infer,
    ),
    Layout(
        name="timm ViT/DeiT/DINOv2",
        marker="blocks.*.attn.qkv",
        prefixes=("module.", "backbone."),
        names=_TIMM_NAMES,
        ignored=("mask_token",),
        infer=_infer,
    ),
)
