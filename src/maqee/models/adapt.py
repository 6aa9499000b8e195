"""Fit the tensors of a checkpoint to the shape that is wanted: other classes, another image size, detection tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.models.backbone import Backbone
from maqee.models.config import BackboneConfig, ViTConfig, as_pair
from maqee.models.positions import resize_positions, spread_over


def adapted_config(
    config: BackboneConfig,
    num_classes: int | None,
    image_size: int | tuple[int, int] | None,
    detection_tokens: int | None = None,
) -> BackboneConfig:
    """The configuration with what the caller wants changed."""
    changes: dict[str, Any] = {}
    if num_classes is not None:
        changes["num_classes"] = num_classes
    if image_size is not None:
        changes["image_size"] = as_pair(image_size)
    if detection_tokens is not None:
        _check_detection(config, detection_tokens)
        if not getattr(config, "detection_tokens", 0):
            changes |= {"detection_tokens": detection_tokens, "readout": "anchored", "pooled_norm": False}
    return replace(config, **changes)


def _check_detection(config: BackboneConfig, wanted: int) -> None:
    if not isinstance(config, ViTConfig):
        raise MaqeeError("Swin has no place for detection_tokens: choose a ViT, DeiT, DINOv2 or YOLOS.")
    if wanted < 1:
        raise MaqeeError(f"detection_tokens must be at least 1, not {wanted}.")
    if config.detection_tokens not in (0, wanted):
        raise MaqeeError(
            f"The model has {config.detection_tokens} detection tokens of its own, not {wanted}: leave "
            "detection_tokens out."
        )


def has_new_head(config: BackboneConfig, wanted: BackboneConfig) -> bool:
    """Whether the checkpoint's classifier does not fit."""
    readouts = [getattr(shape, "readout", "mean") for shape in (config, wanted)]
    return config.num_classes != wanted.num_classes or readouts[0] != readouts[1]


def adapt_state(state: dict[str, Tensor], config: BackboneConfig, fresh: Backbone) -> dict[str, Tensor]:
    """Tensors of a checkpoint of shape `config` for the model `fresh`, which keeps its own values where there are none.

    A ViT that gets detection tokens starts them as blank patches (of the mean colour) on a coarse grid, where their
    boxes start too. A blank patch looks at the patches around it; copies of the class token look at one another.
    """
    wanted = fresh.config
    own = fresh.state_dict()
    if has_new_head(config, wanted):
        state = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
        state |= {name: tensor for name, tensor in own.items() if name.startswith("head.")}
    if not isinstance(config, ViTConfig) or not isinstance(wanted, ViTConfig):
        return state
    state = dict(state)
    placed, old, new, rule = config.placed_tokens, config.grid, wanted.grid, wanted.position_resize
    positions = resize_positions(state["embedding.position"].float(), placed, old, new, rule)
    if wanted.detection_tokens and not config.detection_tokens:
        slots = spread_over(positions[:, placed:], new, wanted.detection_tokens)
        positions = torch.cat([positions, slots], dim=1)
        blank = state["embedding.patch.bias"].float()
        state["embedding.detection_tokens"] = blank.expand_as(own["embedding.detection_tokens"]).clone()
    state["embedding.position"] = positions
    if config.mid_position:
        between = state["mid_position"].float().flatten(0, 1)  # (depth - 1, tokens, dim)
        if wanted.detection_tokens != config.detection_tokens:
            raise MaqeeError(
                "A model with positions between blocks has no slots for new detection_tokens: leave them out."
            )
        state["mid_position"] = resize_positions(between, config.prefix_tokens, old, new, rule).unsqueeze(1)
    return state
