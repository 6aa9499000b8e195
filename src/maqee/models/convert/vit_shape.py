"""The shape of a plain vision transformer, from its tensors and what a config file adds."""

from __future__ import annotations

import math

from maqee.models.config import PositionResize, ReadoutKind, ViTConfig
from maqee.models.convert.hints import Hints
from maqee.models.convert.layout import MisfitError, State, count


def infer_vit(state: State, hints: Hints, resize: PositionResize = "plain") -> ViTConfig:
    """Shapes tell nearly everything; the number of heads and the norm's epsilon come from hints or from custom."""
    placed = 2 if "embedding.distillation_token" in state else 1
    return infer_shape(state, hints, (placed,), resize)


def infer_shape(state: State, hints: Hints, placed: tuple[int, ...], resize: PositionResize) -> ViTConfig:
    """The configuration; `placed` lists how many special tokens may have positions, likelier numbers first."""
    projection = state["embedding.patch.weight"]  # (dim, channels, patch, patch)
    dim, channels, patch_size = projection.shape[0], projection.shape[1], projection.shape[2]
    readout, num_classes = _infer_readout(state, dim, hints)
    _check_mlp(state)
    pre_norm = has_any(state, "embedding.norm.")
    return ViTConfig(
        image_size=_infer_image_size(state["embedding.position"].shape[1], placed, patch_size, hints),
        patch_size=patch_size,
        channels=channels,
        dim=dim,
        depth=count(state, "blocks.*.", "norm1.weight"),
        heads=hints.heads or max(1, dim // 64),
        mlp_dim=state["blocks.0.mlp.fc1.weight"].shape[0],
        num_classes=num_classes,
        readout=readout,
        distillation_token="embedding.distillation_token" in state,
        layer_scale=_has_layer_scale(state),
        qkv_bias=any(name.endswith(".attn.qkv.bias") for name in state),
        norm_eps=hints.norm_eps or (1e-5 if pre_norm else 1e-6),  # of CLIP and of all others
        registers=count_registers(state, hints),
        pre_norm=pre_norm,
        pooled_norm=readout == "mean" and has_any(state, "fc_norm."),
        position_resize=resize,
    )


def count_registers(state: State, hints: Hints) -> int:
    """Their number, which must be the one that a config file states."""
    name = "embedding.register_tokens"
    number = state[name].shape[1] if name in state else 0
    if hints.registers is not None and number != hints.registers:
        if not number:
            raise KeyError(name)
        raise MisfitError(name, f"holds {number} register tokens, expected {hints.registers} as {hints.source} says")
    return number


def _infer_image_size(positions: int, placed: tuple[int, ...], patch_size: int, hints: Hints) -> tuple[int, int]:
    """From the position grid, which is square unless the config file says otherwise."""
    if hints.image_size is not None:
        rows, columns = (side // patch_size for side in hints.image_size)
        if any(rows * columns == positions - special for special in placed):
            return rows * patch_size, columns * patch_size
    for special in placed:
        patches = max(0, positions - special)
        side = math.isqrt(patches)
        if patches and side * side == patches:
            return side * patch_size, side * patch_size
    problem = f"has positions for {positions - placed[0]} patches, which is no square, and no image_size is stated"
    raise MisfitError("embedding.position", problem)


def _infer_readout(state: State, dim: int, hints: Hints) -> tuple[ReadoutKind, int]:
    """The classifier's shape tells what it reads; DINOv2 without one gets the usual class + mean.

    timm's mean token is a setting; its norm behind the pooling tells as much where no config file speaks.
    """
    has_classifier = has_any(state, "head.")
    num_classes = state["head.linear.weight"].shape[0] if has_classifier else 0
    if hints.pooling == "avg" or (hints.pooling is None and has_any(state, "fc_norm.")):
        return "mean", num_classes
    if not has_classifier:
        return ("class+mean" if _has_layer_scale(state) else "class"), 0
    if has_any(state, "head.distillation."):
        return "class+distillation", num_classes
    return ("class+mean" if state["head.linear.weight"].shape[1] == 2 * dim else "class"), num_classes


def _check_mlp(state: State) -> None:
    """SwiGLU keeps two layers in the first one and multiplies them, so that the second sees half of what comes out."""
    first, second = state["blocks.0.mlp.fc1.weight"], state.get("blocks.0.mlp.fc2.weight")
    if second is not None and second.ndim == 2 and 2 * second.shape[1] == first.shape[0]:
        raise MisfitError("blocks.0.mlp.fc2.weight", "takes half of what fc1 gives: a SwiGLU MLP is not supported")


def has_any(state: State, start: str) -> bool:
    """Whether any tensor's name begins so."""
    return any(name.startswith(start) for name in state)


def _has_layer_scale(state: State) -> bool:
    return any(name.endswith((".scale1.gamma", ".scale2.gamma")) for name in state)
