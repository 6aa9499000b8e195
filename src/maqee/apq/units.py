"""What has a pair of widths of its own in a search, and which pairs it may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maqee.apq.options import SearchOptions
from maqee.errors import MaqeeError
from maqee.parts import Part
from maqee.widths import LAYERS, BitPair, BitSettings, BlockWidths

Floats = NDArray[np.float64]
ATTENTION = "attention"


class Unit(NamedTuple):
    """One thing to choose a pair for.

    Attributes:
        kind: a layer, a whole block, an exit head, the patch embedding or the classifier.
        number: of the block from 1, or of the exit head from 0; else 0.
        layer: name of the layer, for that kind.
    """

    kind: Literal["layer", "block", "head", "patch", "classifier"]
    number: int = 0
    layer: str = ""

    @property
    def name(self) -> str:
        """What a person calls it."""
        names = {
            "layer": f"block {self.number} {self.layer}",
            "block": f"block {self.number}",
            "head": f"exit head {self.number + 1}",
            "patch": "patch embedding",
        }
        return names.get(self.kind, self.kind)

    def pair(self, bits: BitSettings) -> BitPair:
        """(weight, activation) bits that settings give it."""
        if self.kind == "layer":
            pair: BitPair = getattr(bits.blocks[self.number - 1], self.layer)
            return pair
        if self.kind == "block":
            return bits.blocks[self.number - 1].qkv
        if self.kind == "head":
            return bits.heads[self.number] if bits.heads else bits.head
        return bits.patch if self.kind == "patch" else bits.classifier

    def with_pair(self, bits: BitSettings, pair: BitPair, heads: int = 0) -> BitSettings:
        """The same settings with another pair for it; `heads` is the number of exit heads."""
        if self.kind == "layer":
            return bits.with_block(self.number, bits.blocks[self.number - 1]._replace(**{self.layer: pair}))
        if self.kind == "block":
            return bits.with_block(self.number, BlockWidths.uniform(*pair))
        if self.kind == "head":
            listed = list(bits.heads or (bits.head,) * heads)
            listed[self.number] = pair
            return replace(bits, heads=tuple(listed))
        return replace(bits, patch=pair) if self.kind == "patch" else replace(bits, classifier=pair)


class Space(NamedTuple):
    """Everything that is chosen.

    Attributes:
        units: in the order of the network.
        pairs: of every unit, the pairs that it may have.
        heads: number of exit heads.
    """

    units: tuple[Unit, ...]
    pairs: tuple[tuple[BitPair, ...], ...]
    heads: int

    def settings(self, bits: BitSettings, chosen: Sequence[BitPair]) -> BitSettings:
        """The settings with the chosen pairs."""
        for unit, pair in zip(self.units, chosen, strict=True):
            bits = unit.with_pair(bits, pair, self.heads)
        return bits

    def chosen(self, bits: BitSettings) -> tuple[BitPair, ...]:
        """The pairs that settings give the units."""
        return tuple(unit.pair(bits) for unit in self.units)

    def widest(self, bits: BitSettings) -> BitSettings:
        """The most bits everywhere."""
        return self.settings(bits, [pairs[-1] for pairs in self.pairs])

    def narrowest(self, bits: BitSettings) -> BitSettings:
        """The fewest bits everywhere."""
        return self.settings(bits, [pairs[0] for pairs in self.pairs])

    def nearest(self, bits: BitSettings) -> BitSettings:
        """The settings with every unit at the pair it may have that is nearest to its own."""

        def near(pairs: Sequence[BitPair], wanted: BitPair) -> BitPair:
            return min(pairs, key=lambda pair: abs(pair[0] - wanted[0]) + abs(pair[1] - wanted[1]))

        return self.settings(bits, [near(pairs, now) for pairs, now in zip(self.pairs, self.chosen(bits), strict=True)])

    def costs(self, parts: Sequence[Part], reach: Floats) -> list[Floats]:
        """Expected BOPs of every unit at each of its pairs, where `reach` is how often each block is executed."""
        return [
            np.array([unit_bops(unit, pair, parts, reach) for pair in pairs])
            for unit, pairs in zip(self.units, self.pairs, strict=True)
        ]


def find_space(
    parts: Sequence[Part], depth: int, options: SearchOptions, can_switch: Callable[[Unit], bool] = lambda unit: True
) -> Space:
    """The units of a model and their pairs, as the options ask; what cannot be switched is no unit.

    Args:
        parts: what the model costs.
        depth: number of blocks.
        options: grain, ranges, and what is searched.
        can_switch: whether the model can give a unit other widths.
    """
    weights = range(options.bit_min, options.bit_max + 1)
    activations = range(options.act_min, options.act_max + 1)
    both = tuple((weight, activation) for weight in weights for activation in activations)
    products = tuple((activation, activation) for activation in activations)
    heads = sum(part.kind == "head" for part in parts)
    units: list[Unit] = []
    for block in range(1, depth + 1):
        if options.grain == "block":
            layers = [Unit("layer", block, layer) for layer in LAYERS]
            if any(map(can_switch, layers)):
                if fixed := [unit.layer for unit in layers if not can_switch(unit)]:
                    raise MaqeeError(
                        f"grain: block {block} cannot be searched as one, because the widths of its {fixed[0]} are "
                        "fixed: search with grain layer, or fix all of its layers or none."
                    )
                units.append(Unit("block", block))
        else:
            if any(part.block == block and part.kind == "linear" and not part.layer for part in parts):
                raise MaqeeError(f"grain: the costs of block {block} are not listed by layer: search with grain block.")
            units += filter(can_switch, (Unit("layer", block, layer) for layer in LAYERS))
    if options.search_bits != "blocks":
        units += filter(can_switch, (Unit("head", number) for number in range(heads)))
    if options.search_bits == "all":
        present = {part.kind for part in parts}
        units += [unit for unit in (Unit("patch"), Unit("classifier")) if unit.kind in present and can_switch(unit)]
    if not units:
        raise MaqeeError("bits: there is nothing to choose, because the widths of all layers are fixed.")
    return Space(tuple(units), tuple(products if unit.layer == ATTENTION else both for unit in units), heads)


def unit_bops(unit: Unit, pair: BitPair, parts: Sequence[Part], reach: Floats) -> float:
    """Expected BOPs of a unit at a pair."""
    total = 0.0
    for part in parts:
        if _belongs(part, unit):
            weight, activation = (pair[1], pair[1]) if part.kind == "attention" else pair
            total += part.macs * weight * activation * (1.0 if part.block == 0 else float(reach[part.block - 1]))
    return total


def _belongs(part: Part, unit: Unit) -> bool:
    if unit.kind in ("layer", "block"):
        same = part.block == unit.number and part.kind in ("linear", "attention")
        return same and (unit.kind == "block" or part.layer == unit.layer)
    return part.kind == unit.kind and (unit.kind != "head" or int(part.layer or 0) == unit.number)
