"""What is quantized, with which grid and how many bits: asked of the code itself, without the real weights.

A compressed run is quantized already: there the answer is what lies in its folder, beside what its plan asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Network, backbone_of, load_network
from maqee.exits.placement import default_positions, head_kinds
from maqee.models import SwinConfig, ViTConfig, is_preset, presets
from maqee.models.config import BackboneConfig
from maqee.models.load import build_backbone, on_meta
from maqee.quant import Bits, QuantizedModel, QuantSettings, methods, quantize
from maqee.quant.places import Place
from maqee.quant.quantized_model import Row, planned_pair
from maqee.runs import is_compressed, resolve_model
from maqee.runtime.loading import load
from maqee.values import plain
from maqee.widths import BitSettings

USUAL_METHOD = "repq"


@dataclass(frozen=True, kw_only=True)
class LayerBits:
    """One layer that could be quantized.

    Attributes:
        layer: its name.
        role: patch, block, merge, head or classifier; "closed head" where a plan closes the exit: it is not run.
        grid: of weights and input, or of the operands of an attention product.
        asked: bits asked for, weights/input.
        got: bits that the method gave it.
        weights: how many it has, without biases.
    """

    layer: str
    role: str
    grid: str
    asked: str
    got: str
    weights: int


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """What a method makes of a model.

    Attributes:
        model: its name.
        method: the quantization method.
        rows: every layer that could be quantized.
        weights: of all of them.
        quantized_weights: of those that are quantized.
    """

    model: str
    method: str
    rows: tuple[LayerBits, ...]
    weights: int
    quantized_weights: int

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee what --json` prints them."""
        values: dict[str, Any] = plain(self)
        return values


def what(
    model: str | Path, method: str | None = None, settings: QuantSettings | None = None, exits: str = "none"
) -> LayerTable:
    """What is quantized: every layer of a model that could be, with which grid and how many bits.

    The method is fitted to a narrow model with the same layers, so that the answer for the largest model takes a
    second: which kind of grid a layer gets, and how many bits, does not depend on its numbers or on its size.

    Args:
        model: a preset, any source of `load_backbone`, a run of `maqee train` or `maqee compress`, or the folder of a
            model with exits. A compressed run is shown as it is, so that nothing else can be asked of it.
        method: a quantization method; "repq" when left out.
        settings: bits of every part.
        exits: "none" (those that are stored with the model), or a scheme of exits to add.
    """
    if Path(model).is_dir() and is_compressed(Path(model)):
        if method is not None or exits != "none" or (settings or QuantSettings()) != QuantSettings():
            raise MaqeeError(f"{model} is compressed already, and shown as it is: leave method, bits and exits out.")
        return _compressed(Path(model))
    method = method or USUAL_METHOD
    _ = methods[method]
    network = _network(resolve_model(model), exits)
    narrow = _narrow(network)
    config = backbone_of(narrow).config
    torch_images = torch.randn(2, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0))
    quantized = quantize(narrow, torch_images, method, settings)
    return _table(str(model), quantized, quantized.table(), network)


def _compressed(run: Path) -> LayerTable:
    """Every layer of a compressed model: the plan's widths, and those that it has."""
    ready = load(run)
    quantized, plan = ready.quantized, ready.plan
    rows = []
    for row in quantized.table():
        place = quantized.places[row.layer]
        role = f"closed {row.role}" if place.head in plan.policy.closed else row.role
        rows.append(row._replace(role=role, asked=_planned(plan.bits, place, quantized.settings)))
    return _table(str(run), quantized, rows, quantized.model)


def _planned(bits: BitSettings, place: Place, settings: QuantSettings) -> str:
    """What a plan, or a setting that goes before it, asks for a layer or attention product."""
    fixed = settings.asked(place)
    if settings.overridden(place):
        pair = (fixed.weights, fixed.activations)
    else:
        weights, activations = planned_pair(bits, place)
        pair = (None if weights == 32 else weights, None if activations == 32 else activations)
    if place.attention:
        return "float" if pair[1] is None else f"{pair[1]}x{pair[1]}"
    return str(Bits(*pair))


def _table(model: str, quantized: QuantizedModel, found: Sequence[Row], network: nn.Module) -> LayerTable:
    """Rows with the number of weights, which is that of the real network."""
    weights = {name: _count(module) for name, module in network.named_modules() if name in quantized.places}
    rows = tuple(LayerBits(**row._asdict(), weights=weights[row.layer]) for row in found)
    rounded = [row for row in rows if row.layer in quantized.layers and not row.got.startswith("float")]
    return LayerTable(
        model=model,
        method=quantized.method,
        rows=rows,
        weights=sum(weights.values()),
        quantized_weights=sum(row.weights for row in rounded),
    )


def _network(model: str | Path, exits: str) -> Network:
    """The model, without memory for its weights where they are not needed."""
    name = str(model)
    network: Network = on_meta(presets[name]) if is_preset(name) else load_network(model)
    if exits == "none":
        return network
    if isinstance(network, EarlyExitModel):
        raise MaqeeError(f"{name} has exits already: leave exits out.")
    positions = default_positions(network)
    with torch.device("meta"):
        return EarlyExitModel(on_meta(network.config), positions, head_kinds(exits, network, len(positions)))


def _narrow(network: Network) -> Network:
    """A model with the same layers that is as narrow as they can be."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = build_backbone(_narrow_config(backbone_of(network).config))
        if not isinstance(network, EarlyExitModel):
            return backbone
        return EarlyExitModel(backbone, network.positions, network.kinds, network.final_kind)


def _narrow_config(config: BackboneConfig) -> BackboneConfig:
    if isinstance(config, ViTConfig):
        return replace(config, dim=64, heads=2, mlp_dim=128, patch_size=4, image_size=(16, 16))
    assert isinstance(config, SwinConfig)
    stages = len(config.depths)
    heads = tuple(2**stage for stage in range(stages))
    return replace(config, dim=16, heads=heads, patch_size=2, window=4, image_size=(2 ** (stages + 2),) * 2)


def _count(module: nn.Module) -> int:
    """Weights of a layer, without its bias; an attention product has none."""
    weight = getattr(module, "weight", None)
    return weight.numel() if isinstance(weight, torch.Tensor) else 0
