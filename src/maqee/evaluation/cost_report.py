"""The cost of a model as a table: MACs, bits, utilization and BOPs of every part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from maqee.apq.cost import part_bops, part_reach, utilization
from maqee.exits import EarlyExitModel, Network, add_exits, backbone_of, exit_blocks_of, has_exits
from maqee.models import Backbone, is_preset, load_backbone, presets
from maqee.models.config import as_pair
from maqee.models.load import on_meta
from maqee.quant.settings import FLOAT, Bits
from maqee.runs import resolve_model
from maqee.values import plain
from maqee.widths import BitSettings, BlockWidths

FULL_BITS = 32  # what float counts as


@dataclass(frozen=True, kw_only=True)
class PartCost:
    """One part of a model.

    Attributes:
        name: what it is.
        kind: patch, linear, attention, merge, head or classifier.
        block: the block that it belongs to, from 1; 0 before the first.
        macs: expected multiply-accumulates of an image.
        weight_bits: of its weights.
        act_bits: of its input.
        reach: share of the images that get there.
        bops: expected bit operations of an image.
    """

    name: str
    kind: str
    block: int
    macs: float
    weight_bits: int
    act_bits: int
    reach: float
    bops: float


@dataclass(frozen=True, kw_only=True)
class CostReport:
    """What an image costs, part by part.

    Attributes:
        bops: expected bit operations of an image.
        bops_without_heads: the same without the heads of exits, as the paper counts ViT-EE.
        macs: expected multiply-accumulates of an image.
        mean_exit: mean block after which images leave.
        exit_blocks: the block after which each exit sits, full depth last.
        exit_mass: share of the images that leaves at each exit and at full depth.
        parts: in the order in which an image meets them.
    """

    bops: float
    bops_without_heads: float
    macs: float
    mean_exit: float
    exit_blocks: tuple[int, ...]
    exit_mass: tuple[float, ...]
    parts: tuple[PartCost, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee cost --json` prints them."""
        values: dict[str, Any] = plain(self)
        return values


def cost(
    model: str | Path | Backbone | EarlyExitModel,
    *,
    weight_bits: int = FULL_BITS,
    act_bits: int = FULL_BITS,
    exits: str = "none",
    exit_mass: Sequence[float] | None = None,
    patch: Bits = FLOAT,
    classifier: Bits = FLOAT,
    image_size: int | None = None,
    final: str | None = None,
    num_classes: int | None = None,
) -> CostReport:
    """MACs and BOPs of a model and of each of its parts, weighted by how often it is executed.

    Args:
        model: a preset's name, any source of `load_backbone`, a run of `maqee train`, or a model.
        weight_bits: of all blocks, heads and mergings; 32 is float.
        act_bits: of the same.
        exits: "none", "lgvit", "vit-ee" or a head kind.
        exit_mass: share of images that leaves at each exit and at full depth; left out, no exit is ever taken, but
            every head is run.
        patch: bits of the patch embedding.
        classifier: bits of the final classifier.
        image_size: input size; the model's own when left out.
        final: a head kind that takes the place of the model's own classifier, e.g. "segformer".
        num_classes: of every classifier; the model's own when left out, and none at all with 0.
    """
    network = _network(model, exits, image_size, final, num_classes)
    backbone, blocks = backbone_of(network), exit_blocks_of(network)
    mass = tuple(exit_mass) if exit_mass is not None else (0.0,) * (len(blocks) - 1) + (1.0,)
    bits = BitSettings(
        blocks=(BlockWidths.uniform(weight_bits, act_bits),) * backbone.depth,
        patch=_counted(patch),
        classifier=_counted(classifier),
        head=(weight_bits, act_bits),
        merge=(weight_bits, act_bits),
    )
    parts = network.parts()
    reach = part_reach(parts, utilization(list(mass), blocks, backbone.depth))
    costs = part_bops(parts, bits) * reach
    rows = tuple(
        PartCost(
            name=part.name,
            kind=part.kind,
            block=part.block,
            macs=part.macs * float(share),
            weight_bits=bits.of(part)[0],
            act_bits=bits.of(part)[1],
            reach=round(float(share), 6),
            bops=float(bops),
        )
        for part, share, bops in zip(parts, reach, costs, strict=True)
    )
    return CostReport(
        bops=float(costs.sum()),
        bops_without_heads=sum(row.bops for row in rows if row.kind != "head"),
        macs=sum(row.macs for row in rows),
        mean_exit=float(sum(share * block for share, block in zip(mass, blocks, strict=True))),
        exit_blocks=tuple(blocks),
        exit_mass=mass,
        parts=rows,
    )


def _counted(bits: Bits) -> tuple[int, int]:
    """Bits as cost counts them: float is 32."""
    return bits.weights or FULL_BITS, bits.activations or FULL_BITS


def _network(
    model: str | Path | Backbone | EarlyExitModel,
    exits: str,
    image_size: int | None,
    final: str | None,
    classes: int | None,
) -> Network:
    if isinstance(model, EarlyExitModel):
        return model
    unchanged = exits == "none" and final is None
    if isinstance(model, str | Path):
        model = str(resolve_model(model))
        if is_preset(model):
            config = presets[model]
            changes: dict[str, Any] = {} if image_size is None else {"image_size": as_pair(image_size)}
            changes |= {} if classes is None else {"num_classes": classes}
            model = on_meta(type(config)(**{**vars(config), **changes}))
        else:
            if unchanged and has_exits(model):
                return EarlyExitModel.load(Path(model))
            model = load_backbone(model, num_classes=classes, image_size=image_size)
    if unchanged:
        return model
    with torch.device("meta"):
        empty = on_meta(model.config)
        return EarlyExitModel(empty, (), (), final) if exits == "none" else add_exits(empty, exits, final=final)
