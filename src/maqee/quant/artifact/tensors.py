"""Tensors of a saved quantized model: their names, shapes and types, and the way to a model and back.

A quantized layer NAME has NAME.codes (packed), NAME.scale, NAME.zero, NAME.group (packed, with two groups only),
NAME.bias and its input's grid as NAME.input.*; an attention product has NAME.q.* and so on. All else is float and keeps
its name in the state dict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.quant.artifact.spec import GridSpec, LayerSpec, WeightSpec, ZeroType
from maqee.quant.coded import KINDS, GridModule, WeightState
from maqee.quant.layer import QuantLayer
from maqee.quant.packing import pack, packed_length, unpack
from maqee.quant.quantized_model import QuantizedModel

_GRID_TENSORS = {"uniform": ("scale", "zero"), "log-sqrt2": ("scale",), "twin": ("fine", "coarse")}
_ZERO_TYPES: dict[ZeroType, torch.dtype] = {"uint8": torch.uint8, "int16": torch.int16, "int32": torch.int32}


class Kind(NamedTuple):
    """What a tensor must look like.

    Attributes:
        positive: whether all its numbers must be above 0, as steps are.
        bits: of packed weight codes, the bits of all of them.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    positive: bool = False
    bits: int = 0

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def float_parts(quantized: QuantizedModel) -> dict[str, Tensor]:
    """Everything that is not part of a quantized layer."""
    quantized_names = tuple(f"{name}." for name in (*quantized.layers, *quantized.attends))
    state = quantized.model.state_dict()
    return {name: tensor for name, tensor in state.items() if not name.startswith(quantized_names)}


# --- what is expected -------------------------------------------------------------------------------------------------


def layer_kinds(name: str, spec: LayerSpec) -> dict[str, Kind]:
    """Tensors of a quantized layer."""
    rows, columns = spec.shape[0], math.prod(spec.shape[1:])
    kinds: dict[str, Kind] = {}
    if spec.weights is None:
        kinds[f"{name}.weight"] = Kind(torch.float32, tuple(spec.shape))
    else:
        bits, groups = spec.weights.bits, spec.weights.groups
        codes = rows * columns
        kinds[f"{name}.codes"] = Kind(torch.uint8, (packed_length(codes, bits),), bits=codes * bits)
        kinds[f"{name}.scale"] = Kind(torch.float32, (rows, groups), positive=True)
        kinds[f"{name}.zero"] = Kind(_ZERO_TYPES[spec.weights.zero], (rows, groups))
        if groups > 1:
            kinds[f"{name}.group"] = Kind(torch.uint8, (packed_length(columns, _group_bits(groups)),))
    if spec.bias:
        kinds[f"{name}.bias"] = Kind(torch.float32, (rows,))
    return kinds | (grid_kinds(f"{name}.input", spec.input) if spec.input else {})


def grid_kinds(name: str, spec: GridSpec) -> dict[str, Kind]:
    """Tensors of a grid."""
    shape = () if spec.channels is None else (spec.channels,)
    zero = Kind(torch.int32 if spec.zero == "integer" else torch.float32, shape)
    step = Kind(torch.float32, shape, positive=True)
    return {f"{name}.{part}": zero if part == "zero" else step for part in _GRID_TENSORS[spec.kind]}


def check_tensors(tensors: Mapping[str, Tensor], kinds: Mapping[str, Kind], source: str) -> None:
    """Name the first tensor that is missing, of another type or shape, or holds impossible numbers."""
    for name, kind in kinds.items():
        if name not in tensors:
            raise MaqeeError(f"{source}: key {name!r} is missing.")
        tensor = tensors[name]
        if (tensor.dtype, tuple(tensor.shape)) != (kind.dtype, kind.shape):
            got, want = f"{tensor.dtype} of shape {tuple(tensor.shape)}", f"{kind.dtype} of shape {kind.shape}"
            raise MaqeeError(f"{source}: key {name!r} is {got}, expected {want}.")
        if kind.dtype.is_floating_point and not torch.isfinite(tensor).all():
            raise MaqeeError(f"{source}: key {name!r} holds numbers that are not finite.")
        if kind.positive and not (tensor > 0).all():
            raise MaqeeError(f"{source}: key {name!r} holds steps that are not above 0.")


def check_nothing_else(tensors: Mapping[str, Tensor], kinds: Mapping[str, Kind], source: str) -> None:
    """Name the first tensor that nobody asked for."""
    if unexpected := sorted(set(tensors) - set(kinds)):
        raise MaqeeError(f"{source}: unexpected key {unexpected[0]!r:.120}.")


# --- from a model -----------------------------------------------------------------------------------------------------


def describe_layer(layer: QuantLayer) -> LayerSpec:
    """What config.json says of a layer."""
    state = layer.state()
    weights, bias = None, layer.inner.bias
    if state is not None:
        groups, bias = int(state.scale.shape[1]), state.bias
        weights = WeightSpec(bits=state.bits, groups=groups, zero=_smallest(state.zero))
    inputs = describe_grid(layer.input) if layer.input is not None else None
    return LayerSpec(shape=list(layer.inner.weight.shape), weights=weights, bias=bias is not None, input=inputs)


def describe_grid(module: GridModule) -> GridSpec:
    """What config.json says of a grid."""
    numbers = dict(module.named_buffers())
    step = numbers[_GRID_TENSORS[module.kind][0]]
    values: dict[str, Any] = {"kind": module.kind, **module.settings}
    if "zero" in numbers:
        zero = numbers["zero"]
        values["zero"] = "integer" if bool((zero == zero.round()).all()) and float(zero.abs().max()) < 2**31 else "real"
    return GridSpec(**values, channels=step.numel() if step.ndim else None)


def layer_tensors(name: str, layer: QuantLayer) -> dict[str, Tensor]:
    """Tensors of a layer as they are stored."""
    state = layer.state()
    found: dict[str, Tensor | None] = {}
    if state is None:
        found = {"weight": layer.inner.weight, "bias": layer.inner.bias}
    else:
        groups = state.scale.shape[1]
        found["codes"] = pack(state.codes, state.bits)
        found["scale"], found["bias"] = state.scale, state.bias
        found["zero"] = state.zero.to(_ZERO_TYPES[_smallest(state.zero)])
        found["group"] = pack(state.group, _group_bits(groups)) if state.group is not None and groups > 1 else None
    tensors = {f"{name}.{part}": tensor for part, tensor in found.items() if tensor is not None}
    return tensors | (grid_tensors(f"{name}.input", layer.input) if layer.input is not None else {})


def grid_tensors(name: str, module: GridModule) -> dict[str, Tensor]:
    """Tensors of a grid as they are stored."""
    tensors = {f"{name}.{part}": tensor for part, tensor in module.named_buffers()}
    if describe_grid(module).zero == "integer":
        tensors[f"{name}.zero"] = tensors[f"{name}.zero"].to(torch.int32)
    return tensors


# --- to a model -------------------------------------------------------------------------------------------------------


def restore_layer(layer: QuantLayer, spec: LayerSpec, tensors: Mapping[str, Tensor], source: str) -> None:
    """Fill a fresh layer; its float weights become those that the codes stand for."""
    name = layer.name
    bias = tensors[f"{name}.bias"] if spec.bias else None
    layer.begin_width(spec.input.bits if spec.input is not None else None)
    if spec.input is not None:
        layer.set_input(restore_grid(f"{name}.input", spec.input, tensors))
    if spec.weights is None:
        weight = tensors[f"{name}.weight"]
    else:
        bits, groups, rows = spec.weights.bits, spec.weights.groups, spec.shape[0]
        columns = math.prod(spec.shape[1:])
        codes = _unpack(tensors, f"{name}.codes", bits, rows * columns, source).view(rows, columns)
        group = None
        if groups > 1:
            group = _unpack(tensors, f"{name}.group", _group_bits(groups), columns, source)
            if int(group.max()) >= groups:
                raise MaqeeError(f"{source}: key '{name}.group' names group {int(group.max())} of {groups}.")
        state = WeightState(bits, codes, tensors[f"{name}.scale"], tensors[f"{name}.zero"], group, bias)
        layer.add_state(state)
        layer.set_bits(bits)
        weight = state.values().view(spec.shape)
    layer.inner.weight = nn.Parameter(weight)
    layer.inner.bias = None if bias is None else nn.Parameter(bias.clone())


def restore_grid(name: str, spec: GridSpec, tensors: Mapping[str, Tensor]) -> GridModule:
    """A grid from its description and numbers."""
    values: dict[str, Any] = {part: tensors[f"{name}.{part}"].float() for part in _GRID_TENSORS[spec.kind]}
    if spec.kind == "twin":
        values["signed"] = spec.signed
    return GridModule(KINDS[spec.kind](bits=spec.bits, **values))


def _unpack(tensors: Mapping[str, Tensor], name: str, bits: int, count: int, source: str) -> Tensor:
    try:
        return unpack(tensors[name], bits, count)
    except MaqeeError as error:
        raise MaqeeError(f"{source}: key {name!r}: {error}") from error


def _group_bits(groups: int) -> int:
    return (groups - 1).bit_length()


def _smallest(zero: Tensor) -> ZeroType:
    """The narrowest type that holds all zero points."""
    low, high = int(zero.min()), int(zero.max())
    for name, dtype in _ZERO_TYPES.items():
        if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
            return name
    raise MaqeeError(f"Zero points from {low} to {high} do not fit into 32 bits: check the range of the weights.")
