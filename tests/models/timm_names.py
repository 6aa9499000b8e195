"""Our tensors under timm's names, written down by hand: nothing here is shared with the converters."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from maqee.models import Backbone, Swin

_VIT = {
    "embedding.class_token": "cls_token",
    "embedding.distillation_token": "dist_token",
    "embedding.position": "pos_embed",
    "embedding.patch.weight": "patch_embed.proj.weight",
    "embedding.patch.bias": "patch_embed.proj.bias",
    "norm.weight": "norm.weight",
    "norm.bias": "norm.bias",
    "head.linear.weight": "head.weight",
    "head.linear.bias": "head.bias",
    "head.distillation.weight": "head_dist.weight",
    "head.distillation.bias": "head_dist.bias",
}
_SWIN = {
    "embedding.patch.weight": "patch_embed.proj.weight",
    "embedding.patch.bias": "patch_embed.proj.bias",
    "embedding.norm.weight": "patch_embed.norm.weight",
    "embedding.norm.bias": "patch_embed.norm.bias",
    "norm.weight": "norm.weight",
    "norm.bias": "norm.bias",
}
_SWIN_HEAD = {
    False: {"head.linear.weight": "head.fc.weight", "head.linear.bias": "head.fc.bias"},
    True: {"head.linear.weight": "head.weight", "head.linear.bias": "head.bias"},
}
_BLOCK = {
    "norm1.weight": "norm1.weight",
    "norm1.bias": "norm1.bias",
    "attn.qkv.weight": "attn.qkv.weight",
    "attn.qkv.bias": "attn.qkv.bias",
    "attn.bias_table": "attn.relative_position_bias_table",
    "attn.proj.weight": "attn.proj.weight",
    "attn.proj.bias": "attn.proj.bias",
    "scale1.gamma": "ls1.gamma",
    "norm2.weight": "norm2.weight",
    "norm2.bias": "norm2.bias",
    "mlp.fc1.weight": "mlp.fc1.weight",
    "mlp.fc1.bias": "mlp.fc1.bias",
    "mlp.fc2.weight": "mlp.fc2.weight",
    "mlp.fc2.bias": "mlp.fc2.bias",
    "scale2.gamma": "ls2.gamma",
}


def timm_state(model: Backbone, old: bool = False) -> dict[str, Tensor]:
    """The state dict that timm would hold; `old` is Swin before timm 0.9."""
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    if isinstance(model, Swin):
        return _swin_state(model, state, old)
    renamed = {}
    for name, tensor in state.items():
        block = re.match(r"blocks\.(\d+)\.", name)
        key = f"blocks.{block[1]}.{_BLOCK[name[block.end() :]]}" if block else _VIT[name]
        renamed[key] = tensor
    return renamed


def _swin_state(model: Swin, state: dict[str, Tensor], old: bool) -> dict[str, Tensor]:
    places = [(stage, index) for stage, depth in enumerate(model.config.depths) for index in range(depth)]
    renamed = {}
    for name, tensor in state.items():
        kind, number, *rest = name.split(".")
        if kind == "blocks":
            stage, index = places[int(number)]
            key = f"layers.{stage}.blocks.{index}.{_BLOCK['.'.join(rest)]}"
        elif kind == "merges":  # "3" stands before the third block
            stage, index = places[int(number) - 1]
            assert index == 0
            key = f"layers.{stage - 1 if old else stage}.downsample.{'.'.join(rest)}"
        else:
            key = (_SWIN | _SWIN_HEAD[old])[name]
        renamed[key] = tensor
    if old:
        area = model.config.window**2
        for stage, index in places:
            renamed[f"layers.{stage}.blocks.{index}.attn.relative_position_index"] = torch.zeros(area, area).long()
            if index % 2:
                renamed[f"layers.{stage}.blocks.{index}.attn_mask"] = torch.zeros(4, area, area)
    return renamed
