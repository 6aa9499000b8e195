"""Layouts of ViT, DeiT and DINOv2 in timm, and of the original DINOv2 release, which has nearly the same names."""

from __future__ import annotations

import torch

from maqee.models.config import BackboneConfig, ViTConfig
from maqee.models.convert.hints import Hints
from maqee.models.convert.layout import Layout, Renamed, State
from maqee.models.convert.vit_shape import count_registers, has_any, infer_shape, infer_vit

_NAMES = (
    ("cls_token", "embedding.class_token"),
    ("dist_token", "embedding.distillation_token"),
    ("reg_token", "embedding.register_tokens"),
    ("pos_embed", "embedding.position"),
    ("patch_embed.proj", "embedding.patch"),
    ("norm_pre", "embedding.norm"),
    ("blocks.*.norm1", "blocks.*.norm1"),
    ("blocks.*.attn.qkv", "blocks.*.attn.qkv"),
    ("blocks.*.attn.proj", "blocks.*.attn.proj"),
    ("blocks.*.ls1.gamma", "blocks.*.scale1.gamma"),
    ("blocks.*.norm2", "blocks.*.norm2"),
    ("blocks.*.mlp.fc1", "blocks.*.mlp.fc1"),
    ("blocks.*.mlp.fc2", "blocks.*.mlp.fc2"),
    ("blocks.*.ls2.gamma", "blocks.*.scale2.gamma"),
    ("norm", "norm"),
    ("fc_norm", "fc_norm"),
    ("head", "head.linear"),
    ("head_dist", "head.distillation"),
)
_FOREIGN = (
    ("blocks.*.attn.q_norm.", "a norm of the queries (qk_norm)"),
    ("blocks.*.attn.k_norm.", "a norm of the keys (qk_norm)"),
    ("blocks.*.attn.norm.", "a norm inside attention (scale_attn_norm)"),
    ("blocks.*.mlp.norm.", "a norm inside the MLP (scale_mlp_norm)"),
    ("blocks.*.mlp.fc1_", "a SwiGLU MLP"),
    ("blocks.*.mlp.w", "a SwiGLU MLP"),
    ("patch_embed.norm.", "a norm behind the patch projection"),
    ("attn_pool.", "attention pooling (global_pool='map')"),
    ("rope.", "rotary positions"),
)


def _infer_timm(state: State, hints: Hints) -> ViTConfig:
    """Positions are for all tokens or, with no_embed_class, for patches only."""
    registers = count_registers(state, hints)
    every = registers + (2 if "embedding.distillation_token" in state else 1)
    likely = (0, every) if registers else (every, 0)
    certain = (0,) if hints.no_embed_class else (every,)
    return infer_shape(state, hints, likely if hints.no_embed_class is None else certain, "antialias")


def _infer_dinov2_release(state: State, hints: Hints) -> ViTConfig:
    """Only the networks with registers were released with antialiasing."""
    return infer_vit(state, hints, "antialias" if "embedding.register_tokens" in state else "offset")


def _complete(tensors: Renamed, config: BackboneConfig) -> None:
    """One form for what timm keeps in several: positions of class and patches, a final norm, a bias of the patches.

    A token without a position gets a zero one; a register's position becomes part of the register.
    """
    assert isinstance(config, ViTConfig)
    state = tensors.state
    if has_any(state, "fc_norm.") and not has_any(state, "norm."):  # on a class token alone, both norms are the same
        for ending in ("weight", "bias"):
            tensors.move(f"fc_norm.{ending}", f"norm.{ending}")
    if config.pre_norm:  # timm leaves the bias out: the norm has one
        state.setdefault("embedding.patch.bias", torch.zeros(config.dim))
    positions, patches = state["embedding.position"], config.grid[0] * config.grid[1]
    if positions.shape == (1, patches, config.dim):
        nowhere = positions.new_zeros(1, config.placed_tokens, config.dim)
        state["embedding.position"] = torch.cat([nowhere, positions], dim=1)
    elif config.registers and positions.shape == (1, config.tokens, config.dim):
        first, of_registers, rest = positions.tensor_split((config.placed_tokens, config.prefix_tokens), dim=1)
        if state["embedding.register_tokens"].shape == of_registers.shape:
            state["embedding.register_tokens"] = state["embedding.register_tokens"].float() + of_registers.float()
            state["embedding.position"] = torch.cat([first, rest], dim=1)


TIMM_VIT_LAYOUTS = (
    Layout(
        name="original DINOv2",
        markers=("mask_token", "register_tokens"),
        prefixes=("backbone.",),
        names=(("register_tokens", "embedding.register_tokens"), *_NAMES),
        ignored=("mask_token",),
        infer=_infer_dinov2_release,
        foreign=_FOREIGN,
        complete=_complete,
    ),
    Layout(
        name="timm ViT/DeiT/DINOv2",
        markers=("blocks.*.attn.qkv",),
        prefixes=("backbone.",),
        names=_NAMES,
        ignored=(),
        infer=_infer_timm,
        foreign=_FOREIGN,
        complete=_complete,
    ),
)
