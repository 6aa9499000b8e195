"""Turn a foreign state dict into a configuration and a state dict of ours."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.models.config import BackboneConfig, SwinConfig
from maqee.models.convert.layout import Hints, Layout, State
from maqee.models.convert.swin import SWIN_LAYOUTS, flat_name, nested_name
from maqee.models.convert.vit import VIT_LAYOUTS

LAYOUTS: tuple[Layout, ...] = (*VIT_LAYOUTS, *SWIN_LAYOUTS)


@dataclass(frozen=True)
class Converted:
    """A checkpoint in our terms, with the way back to the file's own names for error messages."""

    config: BackboneConfig
    state: dict[str, Tensor]
    layout: Layout
    source_keys: tuple[str, ...]
    origin: dict[str, str]

    def name_in_file(self, name: str) -> str:
        """What the file calls, or should call, one of our tensors."""
        if name in self.origin:
            return self.origin[name]
        if isinstance(self.config, SwinConfig):
            name = nested_name(name, self.config.depths)
        return self.layout.theirs(name, self.source_keys)


def convert_state(state: State, hints: Hints, source: str) -> Converted:
    """Recognise the layout of a state dict, rename its tensors and infer the model's shape.

    Args:
        state: tensors by the names of the library that wrote them.
        hints: values of a config file beside it, for what shapes cannot tell; may be empty.
        source: named in errors.
    """
    keys = tuple(state)
    layout = next((layout for layout in LAYOUTS if layout.matches(keys)), None)
    if layout is None:
        first = f"its first key is {keys[0]!r}" if keys else "it holds no tensors"
        known = ", ".join(layout.name for layout in LAYOUTS)
        raise MaqeeError(f"{source} is not a checkpoint of a known architecture ({first}): supported are {known}.")
    if (activation := hints.get("hidden_act", "gelu")) != "gelu":
        raise MaqeeError(f"{source}: hidden_act is {activation!r}, only 'gelu' is supported.")
    renamed, origin = _rename(state, layout, source)
    _fuse_qkv(renamed, origin, layout, keys, source)
    try:
        config = layout.infer(renamed, hints)
    except KeyError as error:
        missing = layout.theirs(str(error.args[0]), keys)
        raise MaqeeError(f"{source}: key {missing!r} is missing from this {layout.name} checkpoint.") from error
    except MaqeeError as error:
        raise MaqeeError(f"{source}: {error}") from error
    if isinstance(config, SwinConfig):
        depths = config.depths
        origin = {flat_name(name, depths): key for name, key in origin.items()}
        renamed = {flat_name(name, depths): tensor for name, tensor in renamed.items()}
    return Converted(config, renamed, layout, keys, origin)


def _rename(state: State, layout: Layout, source: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    renamed: dict[str, Tensor] = {}
    origin: dict[str, str] = {}
    for key, tensor in state.items():
        if layout.is_ignored(key):
            continue
        name = layout.ours(key)
        if name is None:
            raise MaqeeError(f"{source}: unexpected key {key!r} in what looks like a {layout.name} checkpoint.")
        renamed[name], origin[name] = tensor, key
    return renamed, origin


def _fuse_qkv(
    renamed: dict[str, Tensor], origin: dict[str, str], layout: Layout, keys: tuple[str, ...], source: str
) -> None:
    """Stack separate query, key and value layers, as transformers keeps them, into one."""
    pattern = re.compile(r"(.*\.attn\.)[qkv](\.weight|\.bias)")
    stems = dict.fromkeys(match.groups() for name in renamed if (match := pattern.fullmatch(name)))
    for stem, ending in stems:
        names = [f"{stem}{part}{ending}" for part in "qkv"]
        for name in names:
            if name not in renamed:
                missing = layout.theirs(name, keys)
                raise MaqeeError(f"{source}: key {missing!r} is missing from this {layout.name} checkpoint.")
        shapes = {name: renamed[name].shape for name in names}
        for name in names:
            if shapes[name] != shapes[names[0]]:
                raise MaqeeError(
                    f"{source}: key {origin[name]!r} has shape {tuple(shapes[name])}, "
                    f"the query beside it {tuple(shapes[names[0]])}."
                )
        fused = f"{stem}qkv{ending}"
        renamed[fused] = torch.cat([renamed.pop(name) for name in names])
        origin[fused] = origin[names[0]]
