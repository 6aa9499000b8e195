"""What the config file beside a checkpoint says that shapes cannot tell, checked before anything relies on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from maqee.errors import MaqeeError

# Settings of transformers and timm that change what a network computes but not the shapes of its tensors: the values
# that are the network we have. An absent or empty setting is each library's default, which is such a value.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu",),
    "act_layer": ("gelu",),
    "norm_layer": ("layernorm", "LayerNorm"),
    "mlp_layer": ("mlp", "Mlp"),
    "block_fn": ("Block",),
    "global_pool": ("token", "avg"),
    "pool_include_prefix": (),
    "use_swiglu_ffn": (),
}
# timm's configs do not repeat what an architecture's name says.
_UNSUPPORTED_NAMES = {"quickgelu": "the activation QuickGELU", "rope": "rotary positions"}


@dataclass(frozen=True)
class Hints:
    """Facts that are not in the tensors; None where the config file is silent.

    Attributes:
        source: the config file, named in errors.
        pooling: what timm's classifier reads, the class token or the mean patch token.
        no_embed_class: timm's word for positions that are for patches only.
        registers: register tokens the file should hold.
    """

    source: str = ""
    heads: int | None = None
    image_size: tuple[int, int] | None = None
    norm_eps: float | None = None
    pooling: Literal["token", "avg"] | None = None
    no_embed_class: bool | None = None
    registers: int | None = None


def read_hints(config: Mapping[str, Any], source: str) -> Hints:
    """Read a config of transformers, or of timm, whose facts are in pretrained_cfg and model_args."""
    values = _flatten(config)
    _check_supported(values, source)
    heads = values.get("num_attention_heads")
    if heads is None and not isinstance(values.get("num_heads"), list | tuple):  # Swin has a list, and tables that tell
        heads = values.get("num_heads")
    if heads is not None and not _is_size(heads):
        raise MaqeeError(f"{source}: num_attention_heads is {heads!r}, expected a positive whole number.")
    eps = values.get("layer_norm_eps")
    if eps is not None and not (isinstance(eps, int | float) and math.isfinite(eps) and eps > 0):
        raise MaqeeError(f"{source}: layer_norm_eps is {eps!r}, expected a small positive number.")
    registers = values.get("num_register_tokens", values.get("reg_tokens"))
    if registers is not None and registers != 0 and not _is_size(registers):
        raise MaqeeError(f"{source}: num_register_tokens is {registers!r}, expected a whole number.")
    alone = values.get("no_embed_class")
    return Hints(
        source=source,
        heads=heads,
        image_size=_read_size(values.get("image_size"), source),
        norm_eps=None if eps is None else float(eps),
        pooling=values.get("global_pool") or None,
        no_embed_class=alone if isinstance(alone, bool) else None,
        registers=None if registers is None else int(registers),
    )


def _check_supported(values: Mapping[str, Any], source: str) -> None:
    """Refuse what would be another network with the same tensors."""
    for name, supported in _SUPPORTED.items():
        value = values.get(name)
        if value not in (None, False, "", *supported):
            wanted = " or ".join(map(repr, supported)) or "False"
            raise MaqeeError(f"{source}: {name} is {value!r}, only {wanted} is supported.")
    architecture = values.get("architecture")
    for word, meaning in _UNSUPPORTED_NAMES.items():
        if isinstance(architecture, str) and word in architecture:
            raise MaqeeError(f"{source}: architecture {architecture!r} has {meaning}, which is not supported.")


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
