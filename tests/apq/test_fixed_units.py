"""Layers whose bits somebody has fixed stay out of a choice, and a choice begins among what may be chosen."""

from __future__ import annotations

import numpy as np

from maqee.apq import BitSettings, SearchOptions
from maqee.apq.units import Unit, find_space
from maqee.parts import block_parts
from maqee.widths import BlockWidths

MACS = {"qkv": 30, "attention": 5, "projection": 10, "fc1": 40, "fc2": 40}
PARTS = [part for number in (1, 2) for part in block_parts(number, MACS)]
QKV, FC2 = Unit("layer", 1, "qkv"), Unit("layer", 2, "fc2")


def test_fixed_layers_are_no_units() -> None:
    space = find_space(PARTS, 2, SearchOptions(), frozenset({QKV, FC2}))
    assert len(space.units) == 8
    assert not {QKV, FC2} & set(space.units)


def test_a_block_with_a_fixed_layer() -> None:
    """Its pair is told by a layer that can be changed, and costs only what can be changed."""
    space = find_space(PARTS, 2, SearchOptions(grain="block"), frozenset({QKV, FC2}))
    assert [unit.name for unit in space.units] == ["block 1", "block 2"]
    bits = BitSettings(blocks=(BlockWidths.uniform(3, 5)._replace(qkv=(8, 8)), BlockWidths.uniform(4, 4)))
    assert space.chosen(bits) == ((3, 5), (4, 4))
    costs = space.costs(PARTS, np.array([1.0, 0.5]))
    place = space.pairs[0].index((3, 5))
    assert costs[0][place] == (10 + 40 + 40) * 15 + 5 * 25
    assert costs[1][place] == 0.5 * ((30 + 10 + 40) * 15 + 5 * 25)


def test_a_block_of_which_only_attention_is_left() -> None:
    fixed = frozenset(Unit("layer", 1, layer) for layer in ("qkv", "projection", "fc1", "fc2"))
    space = find_space(PARTS, 2, SearchOptions(grain="block"), fixed)
    assert space.units == (Unit("layer", 1, "attention"), Unit("block", 2))
    assert space.pairs[0][0] == (3, 3)


def test_the_nearest_widths_that_may_be_chosen() -> None:
    space = find_space(PARTS, 2, SearchOptions(bit_min=5, bit_max=6, act_min=3, act_max=3))
    assert space.nearest(BitSettings.uniform(4, 4, 2)).blocks == (BlockWidths.uniform(5, 3),) * 2
    same = find_space(PARTS, 2, SearchOptions())
    assert same.nearest(BitSettings.uniform(4, 4, 2)) == BitSettings.uniform(4, 4, 2)
