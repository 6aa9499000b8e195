"""What the config file beside a checkpoint says that shapes cannot tell, checked before anything relies on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maqee.errors import MaqeeError


@dataclass(frozen=True)
class Hints:
    """Facts that are not in the tensors; None where the config file is silent.

    Attributes:
        source: the config file, named in errors.
    """

    source: str = ""
    heads: int | None = None
    image_size: tuple[int, int] | None = None
    norm_eps: float | None = None


def read_hints(config: Mapping[str, Any], source: str) -> Hints:
    """Read a config of transformers, or of timm, whose facts are in pretrained_cfg and model_args."""
    values = _flatten(config)
    if (activation := values.get("hidden_act", "gelu")) != "gelu":
        raise MaqeeError(f"{source}: hidden_act is {activation!r}, only 'gelu' is supported.")
    heads = values.get("num_attention_heads")
    if heads is None and not isinstance(values.get("num_heads"), list | tuple):  # Swin has a list, and tables that tell
        heads = values.get("num_heads")
    if heads is not None and not _is_size(heads):
        raise MaqeeError(f"{source}: num_attention_heads is {heads!r}, expected a positive whole number.")
    eps = values.get("layer_norm_eps")
    if eps is not None and not (isinstance(eps, int | float) and math.isfinite(eps) and eps > 0):
        raise MaqeeError(f"{source}: layer_norm_eps is {eps!r}, expected a small positive number.")
    return Hints(source, heads, _read_size(values.get("image_size"), source), None if eps is None else float(eps))


def _flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(config)
    timm, arguments = config.get("pretrained_cfg"), config.get("model_args")
    if isinstance(timm, dict) and "image_size" not in values:
        shape = timm.get("input_size")  # channels, height, width
        if isinstance(shape, list | tuple) and len(shape) == 3:
            values["image_size"] = shape[1:]
    if isinstance(arguments, dict):
        values = {**arguments, **values}
        if "img_size" in arguments:
            values["image_size"] = arguments["img_size"]
    return values


def _read_size(size: Any, source: str) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if len(pair) != 2 or not all(_is_size(side) for side in pair):
        raise MaqeeError(f"{source}: image_size is {size!r}, expected one or two positive whole numbers.")
    return pair[0], pair[1]


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
