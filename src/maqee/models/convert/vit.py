"""Layouts of ViT, DeiT and DINOv2 in transformers."""

from __future__ import annotations

from dataclasses import replace

from maqee.models.config import ViTConfig
from maqee.models.convert.hints import Hints
from maqee.models.convert.layout import Layout, State
from maqee.models.convert.vit_shape import infer_vit

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


_DINOV2_FOREIGN = (
    ("encoder.layer.*.mlp.weights_", "a SwiGLU MLP"),
    ("encoder.layer.*.mlp.gate_proj.", "a SwiGLU MLP"),
    ("encoder.layer.*.mlp.up_proj.", "a SwiGLU MLP"),
    ("encoder.layer.*.mlp.down_proj.", "a SwiGLU MLP"),
)


def _infer_dinov2_registers(state: State, hints: Hints) -> ViTConfig:
    if "embedding.register_tokens" not in state:
        raise KeyError("embedding.register_tokens")
    return infer_vit(state, hints, "antialias")


_REGISTERS = Layout(
    name="transformers DINOv2 with registers",
    markers=("embeddings.register_tokens",),
    prefixes=("dinov2_with_registers.",),
    names=(
        ("embeddings.register_tokens", "embedding.register_tokens"),
        *TRANSFORMERS_NAMES,
        *encoder_names("encoder.layer"),
    ),
    ignored=("embeddings.mask_token",),
    infer=_infer_dinov2_registers,
    foreign=_DINOV2_FOREIGN,
)
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
    _REGISTERS,
    Layout(
        name="transformers DINOv2",
        markers=("encoder.layer.*.norm1",),
        prefixes=("dinov2.",),
        names=(*TRANSFORMERS_NAMES, *encoder_names("encoder.layer")),
        ignored=("embeddings.mask_token",),
        infer=infer_vit,
        foreign=_DINOV2_FOREIGN,
    ),
    replace(_REGISTERS, markers=("encoder.layer.*.norm1",)),  # by its prefix alone
)
