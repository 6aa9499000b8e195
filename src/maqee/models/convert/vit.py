"""Layouts of ViT, DeiT and DINOv2 in transformers, timm and the original DINOv2 release."""

from __future__ import annotations

import math

from maqee.models.config import ReadoutKind, ViTConfig
from maqee.models.convert.hints import Hints
from maqee.models.convert.layout import Layout, MisfitError, State, count

TRANSFORMERS_NAMES = (
    ("embeddings.cls_token", "embedding.class_token"),
    ("embeddings.distillation_token", "embedding.distillation_token"),
    ("embeddings.position_embeddings", "embedding.position"),
    ("embeddings.patch_embeddings.projection", "embedding.patch"),
    ("layernorm", "norm"),
    ("classifier", "head.linear"),
    ("cls_classifier", "head.linear"),
    ("distillation_classifier", "head.distillation"),
)


def encoder_names(layer: str) -> tuple[tuple[str, str], ...]:
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


def infer_vit(state: State, hints: Hints) -> ViTConfig:
    """Shapes tell nearly everything; the number of heads and the norm's epsilon come from hints or from custom."""
    projection = state["embedding.patch.weight"]  # (dim, channels, patch, patch)
    dim, channels, patch_size = projection.shape[0], projection.shape[1], projection.shape[2]
    readout, num_classes = _infer_readout(state, dim)
    distillation_token = "embedding.distillation_token" in state
    patches = state["embedding.position"].shape[1] - (2 if distillation_token else 1)
    return ViTConfig(
        image_size=_infer_image_size(patches, patch_size, hints),
        patch_size=patch_size,
        channels=channels,
        dim=dim,
        depth=count(state, "blocks.*.", "norm1.weight"),
        heads=hints.heads or max(1, dim // 64),
        mlp_dim=state["blocks.0.mlp.fc1.weight"].shape[0],
        num_classes=num_classes,
        readout=readout,
        distillation_token=distillation_token,
        layer_scale=_has_layer_scale(state),
        qkv_bias=any(name.endswith(".attn.qkv.bias") for name in state),
        norm_eps=hints.norm_eps or 1e-6,
    )


def _infer_image_size(patches: int, patch_size: int, hints: Hints) -> tuple[int, int]:
    """From the position grid, which is square unless the config file says otherwise."""
    if hints.image_size is not None:
        rows, columns = (side // patch_size for side in hints.image_size)
        if rows * columns == patches:
            return rows * patch_size, columns * patch_size
    side = math.isqrt(max(0, patches))
    if side * side != patches or not patches:
        problem = f"has positions for {patches} patches, which is no square, and no image_size is stated"
        raise MisfitError("embedding.position", problem)
    return side * patch_size, side * patch_size


def _infer_readout(state: State, dim: int) -> tuple[ReadoutKind, int]:
    """The classifier's shape tells what it reads; DINOv2 without one gets the usual class + mean."""
    if not any(name.startswith("head.") for name in state):
        return ("class+mean" if _has_layer_scale(state) else "class"), 0
    classifier = state["head.linear.weight"]
    if any(name.startswith("head.distillation.") for name in state):
        return "class+distillation", classifier.shape[0]
    return ("class+mean" if classifier.shape[1] == 2 * dim else "class"), classifier.shape[0]


def _has_layer_scale(state: State) -> bool:
    return any(name.endswith((".scale1.gamma", ".scale2.gamma")) for name in state)


VIT_LAYOUTS = (
    Layout(
        name="transformers ViT/DeiT",
        markers=("encoder.layer.*.layernorm_before",),
        prefixes=("vit.", "deit."),
        names=(*TRANSFORMERS_NAMES, *encoder_names("encoder.layer")),
        ignored=("pooler.dense", "embeddings.mask_token"),
        infer=infer_vit,
    ),
    Layout(
        name="transformers ViT/DeiT",
        markers=("layers.*.layernorm_before",),
        prefixes=("vit.", "deit."),
        names=(*TRANSFORMERS_NAMES, *encoder_names("layers")),
        ignored=("pooler.dense", "embeddings.mask_token"),
        infer=infer_vit,
    ),
    Layout(
        name="transformers DINOv2",
        markers=("encoder.layer.*.norm1",),
        prefixes=("dinov2.",),
        names=(*TRANSFORMERS_NAMES, *encoder_names("encoder.layer")),
        ignored=("embeddings.mask_token",),
        infer=infer_vit,
    ),
    Layout(
        name="timm ViT/DeiT/DINOv2",
        markers=("blocks.*.attn.qkv",),
        prefixes=("backbone.",),
        names=_TIMM_NAMES,
        ignored=("mask_token",),
        infer=infer_vit,
    ),
)
