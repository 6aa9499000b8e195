"""Save a quantized model as codes, scales and zero points, and load it again.

A folder with config.json (shape of the network, method, settings, a description of every quantized layer) and
model.safetensors (packed codes, scales, zero points, and the parts that stay float). The float weights that the codes
were made from are not kept, nor are widths that were fitted but are not in use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.io import read_json, write_atomically, write_json
from maqee.quant.artifact.spec import (
    Spec,
    network_to_json,
    plain_network,
    read_spec,
    settings_from_json,
    settings_to_json,
)
from maqee.quant.artifact.tensors import (
    Kind,
    check_nothing_else,
    check_tensors,
    describe_grid,
    describe_layer,
    float_parts,
    grid_kinds,
    grid_tensors,
    layer_kinds,
    layer_tensors,
    restore_grid,
    restore_layer,
)
from maqee.quant.attend import QuantAttend
from maqee.quant.quantized_model import QuantizedModel
from maqee.runs import CONFIG, WEIGHTS
from maqee.tensors import read_tensors

Build = Callable[[Mapping[str, Any], str], nn.Module]  # description and name of the file, to a network


def save_quantized(quantized: QuantizedModel, folder: Path) -> None:
    """Write config.json and model.safetensors; `load_quantized` reads them back.

    Equal models give equal bytes. Each file is replaced in one step, and config.json, which is written last, holds the
    checksum of the other: an interrupted save over an older one is noticed.
    """
    spec = _describe(quantized)
    _check_description(quantized, spec, "The model to be saved")
    tensors = _tensors(quantized)
    check_tensors(tensors, _quantized_kinds(spec) | _float_kinds(quantized), "The model to be saved")
    data = safetensors.torch.save(tensors)
    spec = spec.model_copy(update={"sha256": hashlib.sha256(data).hexdigest()})
    write_atomically(folder / WEIGHTS, lambda path: _write(path, data))
    write_json(folder / CONFIG, spec.to_json())


def load_quantized(folder: Path, build: Build = plain_network) -> QuantizedModel:
    """Read what `save_quantized` wrote. The model runs from codes; its answers are the same to the bit.

    Everything is checked before memory is taken for the model: a damaged or foreign file is an error that names the
    file and the first bad key. Where float weights are asked for (`in_float`), they are those that the codes stand for.

    Args:
        folder: with config.json and model.safetensors.
        build: makes the network from its description; `maqee.exits.network_from_json` knows those with exits.
    """
    folder = Path(folder)
    config, weights = str(folder / CONFIG), str(folder / WEIGHTS)
    spec = read_spec(read_json(folder / CONFIG), config)
    tensors = _read(folder / WEIGHTS, spec.sha256)
    kinds = _quantized_kinds(spec)
    check_tensors(tensors, kinds, weights)
    with torch.device("meta"):
        shape = _empty(spec, config, build)
    _check_description(shape, spec, config)
    parts = _float_kinds(shape)
    check_tensors(tensors, parts, weights)
    check_nothing_else(tensors, kinds | parts, weights)
    quantized = _empty(spec, config, build)
    for name, tensor in float_parts(quantized).items():
        tensor.copy_(tensors[name])
    for name, layer in quantized.layers.items():
        restore_layer(layer, spec.layers[name], tensors, weights)
    for name, attend in quantized.attends.items():
        described = spec.attention[name]
        attend.begin_width(next((grid.bits for grid in described.values()), None))
        for operand in (operand for operand in QuantAttend.OPERANDS if operand in described):
            attend.grids[operand] = restore_grid(f"{name}.{operand}", described[operand], tensors)
    return quantized


def _describe(quantized: QuantizedModel) -> Spec:
    for module in (*quantized.layers.values(), *quantized.attends.values()):
        if not module.enabled:
            raise MaqeeError(f"{module.name} is switched to float: save outside of `in_float`.")
    for layer in quantized.layers.values():
        if layer.learning:
            raise MaqeeError(f"{layer.name} is learning, so its codes are not final: end the training first.")
    return Spec(
        **network_to_json(quantized.model),
        method=quantized.method,
        settings=settings_to_json(quantized.settings),
        layers={name: describe_layer(layer) for name, layer in quantized.layers.items()},
        attention={
            name: {operand: describe_grid(grid) for operand, grid in attend.all_grids().items()}
            for name, attend in quantized.attends.items()
        },
        sha256="",
    )


def _tensors(quantized: QuantizedModel) -> dict[str, Tensor]:
    tensors = float_parts(quantized)
    for name, layer in quantized.layers.items():
        tensors |= layer_tensors(name, layer)
    for name, attend in quantized.attends.items():
        for operand, grid in attend.all_grids().items():
            tensors |= grid_tensors(f"{name}.{operand}", grid)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _quantized_kinds(spec: Spec) -> dict[str, Kind]:
    """The tensors of quantized layers and attention products that the file must hold."""
    kinds: dict[str, Kind] = {}
    for name, layer in spec.layers.items():
        kinds |= layer_kinds(name, layer)
    for name, operands in spec.attention.items():
        for operand, grid in operands.items():
            kinds |= grid_kinds(f"{name}.{operand}", grid)
    return kinds


def _float_kinds(quantized: QuantizedModel) -> dict[str, Kind]:
    """All other tensors; those that are not integers are float32."""
    return {
        name: Kind(torch.float32 if tensor.is_floating_point() else tensor.dtype, tuple(tensor.shape))
        for name, tensor in float_parts(quantized).items()
    }


def _read(path: Path, sha256: str) -> dict[str, Tensor]:
    if not path.is_file():
        raise MaqeeError(f"{path} does not exist: copy it from where {CONFIG} came from.")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise MaqeeError(
            f"{path} is not the file that was saved with {CONFIG} (its checksum is not that of key 'sha256'): "
            "copy both files again."
        )
    return read_tensors(path)


def _empty(spec: Spec, source: str, build: Build) -> QuantizedModel:
    """The network with quantized layers that hold nothing yet."""
    settings = settings_from_json(spec.settings, source)
    try:
        return QuantizedModel(build(spec.network, source), spec.method, settings)
    except MaqeeError as error:
        message = str(error)
        raise MaqeeError(message if message.startswith(source) else f"{source}: {message}") from error
    except (RuntimeError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
        reason = str(error).split("\n")[0]
        raise MaqeeError(f"{source}: key 'backbone' describes no network that can be built ({reason:.120}).") from error


def _check_description(shape: QuantizedModel, spec: Spec, source: str) -> None:
    """The description covers exactly what the settings quantize, with its shapes and bits."""
    for key, found, wanted in (
        ("layers", set(spec.layers), set(shape.layers)),
        ("attention", set(spec.attention), set(shape.attends)),
    ):
        if wrong := sorted(found ^ wanted):
            word = "is missing" if wrong[0] in wanted else "is not quantized by these settings"
            raise MaqeeError(f"{source}: key {f'{key}.{wrong[0]}'!r:.120} {word}.")
    for name, layer in shape.layers.items():
        described, own = spec.layers[name], list(layer.inner.weight.shape)
        key = f"layers.{name}"
        _equal(described.shape, own, f"{key}.shape", source)
        if described.weights is not None and described.weights.bits not in shape.widths(name):
            raise MaqeeError(f"{source}: key '{key}.weights.bits' is not among the widths {shape.widths(name)}.")
        input_bits = described.input.bits if described.input else None
        _among(input_bits, shape.act_widths(name), f"{key}.input.bits", source)
        if described.input is not None and described.input.channels is not None:
            _equal(described.input.channels, own[1], f"{key}.input.channels", source)
    for name, operands in spec.attention.items():
        for operand, grid in operands.items():
            key = f"attention.{name}.{operand}"
            if operand not in QuantAttend.OPERANDS:
                raise MaqeeError(f"{source}: unexpected key {key!r:.120}.")
            _among(grid.bits, shape.act_widths(name), f"{key}.bits", source)
            _equal(grid.bits, next(iter(operands.values())).bits, f"{key}.bits", source)
            _equal(grid.channels, None, f"{key}.channels", source)


def _equal(found: object, wanted: object, key: str, source: str) -> None:
    if found != wanted:
        raise MaqeeError(f"{source}: key {key!r} is {found!r:.60}, expected {wanted!r}.")


def _among(found: object, allowed: tuple[object, ...], key: str, source: str) -> None:
    if found not in allowed:
        shown = " or ".join(map(str, allowed))
        raise MaqeeError(f"{source}: key {key!r} is {found!r:.60}, expected {shown}.")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
