"""What a live module computes that its tensors do not tell: activations, norms, attention, pooling.

Neither timm nor transformers is imported. Modules are recognised by where they stand, next to tensors whose part is
known, and activations by what they compute.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from maqee.errors import MaqeeError
from maqee.models.config import SwinConfig
from maqee.models.convert.convert import Converted

_SETTINGS = ("global_pool", "no_embed_class", "pool_include_prefix")  # attributes of timm's models, as in its configs
_NORMS = ("norm", "norm1", "norm2")
_LINEAR = ("q", "k", "v", "qkv", "proj", "fc1", "fc2", "linear", "distillation", "reduction")
_PASSIVE = (nn.Identity, nn.Dropout)  # what may stand beside an activation and does nothing
_TRIED = torch.linspace(-6, 6, 97)  # GELU's tanh form differs by up to 5e-4 here
_ROUNDING = 1e-5


def live_values(module: nn.Module) -> dict[str, Any]:
    """What the attributes of a live module say, under the names that config files use."""
    values: dict[str, Any] = {}
    for child in module.modules():
        if isinstance(heads := getattr(child, "num_heads", None), int):
            values.setdefault("num_heads", heads)
        if isinstance(child, nn.LayerNorm):
            values.setdefault("layer_norm_eps", child.eps)
        for name in _SETTINGS:
            if isinstance(value := getattr(child, name, None), str | bool):
                values.setdefault(name, value)
        if isinstance(size := getattr(getattr(child, "patch_embed", None), "img_size", None), int | tuple):
            values.setdefault("image_size", size)
    return values


def check_module(module: nn.Module, converted: Converted, source: str) -> None:
    """Refuse a module that is another network than ours with the same tensors; name the part and why."""
    modules = dict(module.named_modules(remove_duplicate=False))
    for path, child in modules.items():
        if getattr(child, "rope", None) is not None:
            raise MaqeeError(f"{source}: {path or 'the module'} has rotary positions (rope), which are not supported.")
    for name, key in converted.origin.items():
        path, _, kind = key.rpartition(".")
        part = name.removesuffix(".weight").rpartition(".")[2]
        owner = modules.get(path)
        if kind != "weight" or owner is None:
            continue
        parent = path.rpartition(".")[0]
        problem = _problem_of(owner, part, converted)
        if problem is None and part in ("q", "qkv"):
            problem = _problem_of_attention(modules[parent], owner, _heads(name, converted))
            path = parent
        if problem is None and part == "norm1" and "PostBlock" in type(modules[parent]).__name__:
            path, problem = parent, "puts its norms behind attention and MLP; only norms in front are supported"
        if problem is None and part == "fc1":
            path, problem = _problem_of_activation(modules[parent], parent)
        if problem is not None:
            raise MaqeeError(f"{source}: {path} {problem}.")


def _problem_of(owner: nn.Module, part: str, converted: Converted) -> str | None:
    """Of the layer that holds a tensor."""
    kind = type(owner).__name__
    if part in _NORMS:
        if not isinstance(owner, nn.LayerNorm):
            return f"is a {kind}, only LayerNorm is supported"
        if owner.eps != converted.config.norm_eps:
            return f"has eps {owner.eps:g}, other norms {converted.config.norm_eps:g}: only one for all is supported"
    if part in _LINEAR and not isinstance(owner, nn.Linear):
        return f"is a {kind}, only Linear is supported"
    if part == "patch":
        if not isinstance(owner, nn.Conv2d):
            return f"is a {kind}, only Conv2d is supported"
        if owner.stride != owner.kernel_size or owner.padding not in ((0, 0), "valid") or owner.dilation != (1, 1):
            return f"cuts out overlapping or padded patches ({owner}), only patches side by side are supported"
    return None


def _problem_of_attention(attention: nn.Module, queries: nn.Module, heads: int) -> str | None:
    """Heads that differ between blocks, and a scale of one's own."""
    own = getattr(attention, "num_heads", getattr(attention, "num_attention_heads", heads))
    if own != heads:
        return f"has {own} heads, other blocks {heads}: only one number for all is supported"
    usual = (queries.get_parameter("weight").shape[1] / heads) ** -0.5
    scale = getattr(attention, "scale", getattr(attention, "scaling", usual))
    if isinstance(scale, float) and abs(scale / usual - 1) > _ROUNDING:
        return f"scales its products by {scale:g}, only 1/sqrt(head width), {usual:g}, is supported"
    return None


def _heads(name: str, converted: Converted) -> int:
    """Of the block that one of our tensors belongs to."""
    config = converted.config
    return config.heads[config.stage_of(int(name.split(".")[1]))] if isinstance(config, SwinConfig) else config.heads


def _problem_of_activation(mlp: nn.Module, path: str) -> tuple[str, str | None]:
    """What stands beside the first layer of an MLP, and why it is not GELU."""
    active = {
        name: child
        for name, child in mlp.named_children()
        if not isinstance(child, _PASSIVE) and not any(True for _ in child.parameters())
    }
    for name, child in active.items():
        if not _is_gelu(child):
            return f"{path}.{name}", f"is the activation {child}, only GELU in its exact form is supported"
    if not active:
        return path, "has no module for its activation to look at: if it is GELU, save the state dict and load the file"
    return path, None


@torch.no_grad()
def _is_gelu(activation: nn.Module) -> bool:
    """By what it computes, whatever its name: each library has classes of its own."""
    output = activation(_TRIED.clone())
    return isinstance(output, torch.Tensor) and torch.allclose(output, F.gelu(_TRIED), rtol=0, atol=_ROUNDING)
