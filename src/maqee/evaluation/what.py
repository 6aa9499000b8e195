"""What is quantized, with which grid and how many bits: asked of the code itself, without the real weights."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Network, backbone_of, load_network
from maqee.exits.placement import default_positions, head_kinds
from maqee.models import SwinConfig, ViTConfig, presets
from maqee.models.config import BackboneConfig
from maqee.models.load import build_backbone, on_meta
from maqee.quant import QuantSettings, methods, quantize


def describe_quantization(
    model: str | Path, method: str = "repq", settings: QuantSettings | None = None, exits: str = "none"
) -> dict[str, Any]:
    """Every layer of a model that could be quantized, and what a method makes of it.

    The method is fitted to a narrow model with the same layers, so that the answer for the largest model takes a
    second: which kind of grid a layer gets, and how many bits, does not depend on its numbers or on its size.

    Args:
        model: a preset, any source of `load_backbone`, or the folder of an early-exit model.
        method: a quantization method.
        settings: bits of every part.
        exits: "none" (those that are stored with the model), or a scheme of exits to add.
    """
    _ = methods[method]
    network = _network(model, exits)
    narrow = _narrow(network)
    config = backbone_of(narrow).config
    torch_images = torch.randn(2, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0))
    quantized = quantize(narrow, torch_images, method, settings)
    weights = {name: _count(module) for name, module in network.named_modules() if name in quantized.places}
    rows = [{**row._asdict(), "weights": weights[row.layer]} for row in quantized.table()]
    return {
        "model": str(model),
        "method": method,
        "rows": rows,
        "weights": sum(weights.values()),
        "quantized_weights": sum(
            row["weights"] for row in rows if row["layer"] in quantized.layers and not row["got"].startswith("float")
        ),
    }


def group_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that differ in a layer's number only, as one: "blocks.0-11.attn.qkv", with the number of layers."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        shape = re.sub(r"\d+", "*", row["layer"], count=1)
        groups.setdefault((shape, *(row[name] for name in ("role", "grid", "asked", "got"))), []).append(row)
    return [
        {
            **members[0],
            "layer": key[0].replace("*", _span([member["layer"] for member in members])),
            "layers": len(members),
            "weights": sum(member["weights"] for member in members),
        }
        for key, members in groups.items()
    ]


def _span(names: list[str]) -> str:
    """The numbers in names as text: "3", "0-11" or "0,2,5"."""
    numbers = [int(found[0]) for name in names if (found := re.search(r"\d+", name))]
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))


def _network(model: str | Path, exits: str) -> Network:
    """The model, without memory for its weights where they are not needed."""
    name = str(model)
    network: Network = on_meta(presets[name]) if name in presets and not Path(name).exists() else load_network(model)
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
