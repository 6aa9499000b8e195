"""The cost of a model as a table: MACs, bits, utilization and BOPs of every part."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from maqee.apq.cost import FULL, BitPair, BitSettings, part_bops, part_reach, utilization
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Network, add_exits, backbone_of, exit_blocks_of, has_exits
from maqee.models import Backbone, load_backbone, presets
from maqee.models.config import as_pair
from maqee.models.load import on_meta


def cost_report(
    model: str | Backbone | EarlyExitModel,
    *,
    weight_bits: int = 32,
    act_bits: int = 32,
    exits: str = "none",
    exit_mass: list[float] | None = None,
    patch_bits: BitPair = FULL,
    classifier_bits: BitPair = FULL,
    image_size: int | None = None,
    final: str | None = None,
    num_classes: int | None = None,
) -> dict[str, Any]:
    """MACs and BOPs of a model and of each of its parts, weighted by how often it is executed.

    Args:
        model: a preset's name, any source of `load_backbone`, or a model.
        weight_bits: of all blocks, heads and mergings.
        act_bits: of the same.
        exits: "none", "lgvit", "vit-ee" or a head kind.
        exit_mass: share of images that leaves at each exit and at full depth; left out, no exit is ever taken, but
            every head is run.
        patch_bits: (weight, activation) of the patch embedding.
        classifier_bits: (weight, activation) of the final classifier.
        image_size: input size; the model's own when left out.
        final: a head kind that takes the place of the model's own classifier, e.g. "segformer".
        num_classes: of every classifier; the model's own when left out, and none at all with 0.
    """
    network = _network(model, exits, image_size, final, num_classes)
    backbone, blocks = backbone_of(network), exit_blocks_of(network)
    if exit_mass is None:
        exit_mass = [0.0] * (len(blocks) - 1) + [1.0]
    bits = BitSettings(
        weights=(weight_bits,) * backbone.depth,
        activations=act_bits,
        patch=patch_bits,
        classifier=classifier_bits,
        head=(weight_bits, act_bits),
        merge=(weight_bits, act_bits),
    )
    parts = network.parts()
    reach = part_reach(parts, utilization(exit_mass, blocks, backbone.depth))
    costs = part_bops(parts, bits) * reach
    rows = [
        {
            "name": part.name,
            "kind": part.kind,
            "block": part.block,
            "macs": part.macs * float(share),
            "weight_bits": bits.of(part)[0],
            "act_bits": bits.of(part)[1],
            "reach": round(float(share), 6),
            "bops": float(cost),
        }
        for part, share, cost in zip(parts, reach, costs, strict=True)
    ]
    return {
        "bops": float(costs.sum()),
        "bops_without_heads": sum(row["bops"] for row in rows if row["kind"] != "head"),
        "macs": sum(row["macs"] for row in rows),
        "mean_exit": float(sum(share * block for share, block in zip(exit_mass, blocks, strict=True))),
        "exit_blocks": list(blocks),
        "exit_mass": list(exit_mass),
        "parts": rows,
    }


def _network(
    model: str | Backbone | EarlyExitModel, exits: str, image_size: int | None, final: str | None, classes: int | None
) -> Network:
    if isinstance(model, EarlyExitModel):
        return model
    plain = exits == "none" and final is None
    if isinstance(model, str):
        if model in presets and not Path(model).exists():
            config = presets[model]
            changes: dict[str, Any] = {} if image_size is None else {"image_size": as_pair(image_size)}
            changes |= {} if classes is None else {"num_classes": classes}
            model = on_meta(type(config)(**{**vars(config), **changes}))
        else:
            if plain and has_exits(model):
                return EarlyExitModel.load(Path(model))
            model = load_backbone(model, num_classes=classes, image_size=image_size)
    if plain:
        return model
    with torch.device("meta"):
        empty = on_meta(model.config)
        return EarlyExitModel(empty, (), (), final) if exits == "none" else add_exits(empty, exits, final=final)


def parse_bits(text: str) -> BitPair:
    """Read "8/8" as (8, 8)."""
    weight, slash, activation = text.partition("/")
    if not slash or not weight.isdecimal() or not activation.isdecimal():
        raise MaqeeError(f"{text!r} is no pair of bit-widths: write, for example, 8/8.")
    return int(weight), int(activation)


def parse_mass(text: str) -> list[float]:
    """Read "0.5,0.25,0.25" as numbers."""
    try:
        mass = [float(share) for share in text.split(",")]
    except ValueError as error:
        raise MaqeeError(f"--exit-mass {text!r} must be numbers with commas between them.") from error
    if not all(math.isfinite(share) for share in mass):
        raise MaqeeError(f"--exit-mass {text!r} must be finite numbers.")
    return mass
