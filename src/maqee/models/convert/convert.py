"""Turn a foreign state dict into a configuration and a state dict of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.models.config import BackboneConfig, SwinConfig
from maqee.models.convert.hints import Hints
from maqee.models.convert.layout import Layout, MisfitError, Renamed, State
from maqee.models.convert.swin import SWIN_LAYOUTS, flat_name, nested_name
from maqee.models.convert.timm_vit import TIMM_VIT_LAYOUTS
from maqee.models.convert.vit import VIT_LAYOUTS
from maqee.models.convert.yolos import YOLOS_LAYOUTS
from maqee.models.finite import NOT_FINITE, is_finite

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LAYOUTS: tuple[Layout, ...] = (*YOLOS_LAYOUTS, *VIT_LAYOUTS, *TIMM_VIT_LAYOUTS, *SWIN_LAYOUTS)

# Dimensions of the tensors from which a model's shape is read, by the end of their names.
_DIMENSIONS = {
    "embedding.patch.weight": 4,
    "embedding.position": 3,
    "embedding.detection_tokens": 3,
    "embedding.register_tokens": 3,
    "mid_position": 4,
    "attn.bias_table": 2,
    "mlp.fc1.weight": 2,
    "head.linear.weight": 2,
    "head.classes.layers.2.weight": 2,
}


@dataclass(frozen=True)
class Converted:
    """A checkpoint in our terms, with the way back to the file's own names for error messages.

    Attributes:
        fused: our tensors that the file keeps in three pieces.
    """

    config: BackboneConfig
    state: dict[str, Tensor]
    layout: Layout
    source_keys: tuple[str, ...]
    origin: dict[str, str]
    fused: frozenset[str]

    def name_in_file(self, name: str) -> str:
        """What the file calls, or should call, one of our tensors."""
        if name in self.origin:
            return self.origin[name]
        if isinstance(self.config, SwinConfig):
            name = nested_name(name, self.config.depths)
        return self.layout.theirs(name, self.source_keys)

    def shape_in_file(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that the file gives, or should give, to one of our tensors."""
        return (shape[0] // 3, *shape[1:]) if name in self.fused else tuple(shape)


def convert_state(state: State, hints: Hints, source: str) -> Converted:
    """Recognise the layout of a state dict, rename its tensors and infer the model's shape.

    Args:
        state: tensors by the names of the library that wrote them.
        hints: what a config file beside it tells that shapes cannot; may be empty.
        source: named in errors.
    """
    keys = tuple(state)
    layout = next((layout for layout in LAYOUTS if layout.matches(keys)), None)
    if layout is None:
        first = f"its first key is {keys[0]!r}" if keys else "it holds no tensors"
        known = ", ".join(dict.fromkeys(layout.name for layout in LAYOUTS))
        raise MaqeeError(f"{source} is not a checkpoint of a known architecture ({first}): supported are {known}.")
    tensors = _rename(state, layout, source)
    renamed, origin = tensors.state, tensors.origin
    try:
        _check_tensors(renamed)
        fused = _fuse_qkv(renamed, origin)
        config = layout.infer(renamed, hints)
        if layout.complete is not None:
            layout.complete(tensors, config)
    except KeyError as error:
        missing = layout.theirs(str(error.args[0]), keys)
        raise MaqeeError(f"{source}: key {missing!r} is missing from this {layout.name} checkpoint.") from error
    except MisfitError as error:
        key = origin.get(error.name) or layout.theirs(error.name, keys)
        raise MaqeeError(f"{source}: key {key!r} {error.problem}.") from error
    except MaqeeError as error:
        raise MaqeeError(f"{hints.source or source}: {error}") from error
    if isinstance(config, SwinConfig):
        depths = config.depths
        origin = {flat_name(name, depths): key for name, key in origin.items()}
        renamed = {flat_name(name, depths): tensor for name, tensor in renamed.items()}
        fused = [flat_name(name, depths) for name in fused]
    return Converted(config, renamed, layout, keys, origin, frozenset(fused))


def _rename(state: State, layout: Layout, source: str) -> Renamed:
    renamed: dict[str, Tensor] = {}
    origin: dict[str, str] = {}
    for key, tensor in state.items():
        if layout.is_ignored(key):
            continue
        name = layout.ours(key)
        if name is None:
            words = f" of {meaning}, which is not supported," if (meaning := layout.meaning(key)) else ""
            raise MaqeeError(f"{source}: unexpected key {key!r}{words} in what looks like a {layout.name} checkpoint.")
        if name in origin:
            raise MaqeeError(f"{source}: keys {origin[name]!r} and {key!r} are two names for one tensor; remove one.")
        renamed[name], origin[name] = tensor, key
    return Renamed(renamed, origin)


def _check_tensors(renamed: dict[str, Tensor]) -> None:
    """Before shapes are read: a tensor with nothing in it or of the wrong kind tells no shape.

    Values are looked at here, where query, key and value still have the file's names.
    """
    for name, tensor in renamed.items():
        if tensor.dtype not in FLOATS:
            raise MisfitError(name, f"holds {tensor.dtype} numbers, expected 16, 32 or 64 bit floating point")
        wanted = next((number for ending, number in _DIMENSIONS.items() if name.endswith(ending)), tensor.ndim)
        if not tensor.ndim or not tensor.numel() or tensor.ndim != wanted:
            expected = "at least one number" if tensor.ndim == wanted else f"{max(1, wanted)} dimensions"
            raise MisfitError(name, f"has shape {tuple(tensor.shape)}, expected {expected}")
        if not is_finite(tensor):
            raise MisfitError(name, NOT_FINITE)


def _fuse_qkv(renamed: dict[str, Tensor], origin: dict[str, str]) -> list[str]:
    """Stack separate query, key and value layers, as transformers keeps them, into one; return the new names."""
    pattern = re.compile(r"(.*\.attn\.)[qkv](\.weight|\.bias)")
    stems = dict.fromkeys(match.groups() for name in renamed if (match := pattern.fullmatch(name)))
    for stem, ending in stems:
        names = [f"{stem}{part}{ending}" for part in "qkv"]
        for name in names:
            if name not in renamed:
                raise KeyError(name)
        shapes = [tuple(renamed[name].shape) for name in names]
        usual = max(shapes, key=shapes.count)
        for name, shape in zip(names, shapes, strict=True):
            if shape != usual:
                raise MisfitError(name, f"has shape {shape}, expected {usual} as of the two beside it")
        fused = f"{stem}qkv{ending}"
        renamed[fused] = torch.cat([renamed.pop(name) for name in names])
        origin[fused] = origin[names[0]]
    return [f"{stem}qkv{ending}" for stem, ending in stems]
