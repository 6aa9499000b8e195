"""What is chosen: units, their pairs, and what these cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq.cost import bops
from maqee.apq.options import SearchOptions
from maqee.apq.units import Space, Unit, find_space, unit_bops
from maqee.errors import MaqeeError
from maqee.parts import Part
from maqee.widths import LAYERS, BitSettings, BlockWidths
from tests.apq.fake_joint import AdditiveModel

MODEL = AdditiveModel(exits=(1, 2, 3))


def space_of(**changes: object) -> Space:
    return find_space(MODEL.parts, MODEL.depth, SearchOptions(**changes))  # type: ignore[arg-type]


def test_units_in_the_order_of_the_network() -> None:
    layers = [f"block {block} {layer}" for block in (1, 2, 3) for layer in LAYERS]
    assert [unit.name for unit in space_of(search_bits="blocks").units] == layers
    heads = ["exit head 1", "exit head 2"]
    assert [unit.name for unit in space_of().units] == [*layers, *heads]
    assert [unit.name for unit in space_of(grain="block").units] == ["block 1", "block 2", "block 3", *heads]
    everything = [*layers, *heads, "patch embedding", "classifier"]
    assert [unit.name for unit in space_of(search_bits="all").units] == everything


def test_pairs() -> None:
    space = space_of(bit_min=3, bit_max=4, act_min=5, act_max=7)
    pairs = dict(zip(space.units, space.pairs, strict=True))
    assert pairs[Unit("layer", 1, "fc1")] == ((3, 5), (3, 6), (3, 7), (4, 5), (4, 6), (4, 7))
    assert pairs[Unit("layer", 1, "attention")] == ((5, 5), (6, 6), (7, 7))
    assert space.widest(MODEL.start).blocks == (BlockWidths.uniform(4, 7),) * 3
    assert space.narrowest(MODEL.start).blocks == (BlockWidths.uniform(3, 5),) * 3


def test_the_default_ranges() -> None:
    pairs = space_of().pairs
    assert (len(pairs[0]), len(pairs[1])) == (4 * 6, 6)
    assert (pairs[0][0], pairs[0][-1]) == ((3, 3), (6, 8))


@pytest.mark.parametrize("unit", space_of(search_bits="all").units, ids=lambda unit: unit.name)
def test_a_pair_is_read_where_it_was_written(unit: Unit) -> None:
    pair = (5, 5)
    after = unit.with_pair(MODEL.start, pair, heads=2)
    assert unit.pair(after) == pair
    others = [other for other in space_of(search_bits="all").units if other != unit]
    assert all(other.pair(after) == other.pair(MODEL.start) for other in others)


def test_the_nearest_pairs() -> None:
    space = space_of(bit_min=5, bit_max=6, act_min=2, act_max=3, grain="block")
    assert space.nearest(MODEL.start).blocks == (BlockWidths.uniform(5, 3),) * 3
    assert space_of().nearest(MODEL.start) == replace(MODEL.start, heads=((4, 4), (4, 4)))
    assert space_of(search_bits="all").nearest(MODEL.start).patch == (6, 8)  # 32 bits are outside


def test_what_is_fixed_is_no_unit() -> None:
    fixed = {Unit("layer", 2, "fc1"), Unit("head", 1), Unit("classifier")}
    options = SearchOptions(search_bits="all")
    space = find_space(MODEL.parts, 3, options, lambda unit: unit not in fixed)
    assert set(space_of(search_bits="all").units) - set(space.units) == fixed
    assert space.heads == 2


def test_fixed_layers_by_block() -> None:
    options = SearchOptions(grain="block", search_bits="blocks")
    with pytest.raises(MaqeeError, match=r"^grain: block 2 cannot be searched as one, because the widths of its fc1"):
        find_space(MODEL.parts, 3, options, lambda unit: unit != Unit("layer", 2, "fc1"))
    space = find_space(MODEL.parts, 3, options, lambda unit: unit.number != 2)
    assert space.units == (Unit("block", 1), Unit("block", 3))  # a block that is fixed as a whole is left out


def test_nothing_to_choose() -> None:
    with pytest.raises(MaqeeError, match="nothing to choose"):
        find_space(MODEL.parts, 3, SearchOptions(), lambda unit: False)


def test_costs_must_be_listed_by_layer() -> None:
    parts = [Part("block 1", "linear", 100, 1)]
    with pytest.raises(MaqeeError, match=r"^grain: the costs of block 1 are not listed by layer"):
        find_space(parts, 1, SearchOptions())
    space = find_space(parts, 1, SearchOptions(grain="block"))
    assert unit_bops(space.units[0], (3, 5), parts, np.ones(1)) == 1500


def test_costs_by_hand() -> None:
    reach = np.array([1.0, 0.5, 0.25])
    assert unit_bops(Unit("layer", 2, "fc1"), (3, 6), MODEL.parts, reach) == 0.5 * 400 * 18
    assert unit_bops(Unit("layer", 3, "attention"), (7, 7), MODEL.parts, reach) == 0.25 * 90 * 49
    assert unit_bops(Unit("block", 1), (3, 5), MODEL.parts, reach) == 1200 * 15 + 90 * 25
    assert unit_bops(Unit("head", 1), (4, 8), MODEL.parts, reach) == 0.5 * 50 * 32
    assert unit_bops(Unit("patch"), (4, 4), MODEL.parts, reach) == 20 * 16  # everybody runs it
    assert unit_bops(Unit("classifier"), (6, 8), MODEL.parts, reach) == 10 * 48


@given(
    data=st.data(), grain=st.sampled_from(["layer", "block"]), reach=st.lists(st.floats(0, 1), min_size=3, max_size=3)
)
def test_units_add_up_to_the_whole(data: st.DataObject, grain: str, reach: list[float]) -> None:
    space = space_of(grain=grain, search_bits="all")
    chosen = [data.draw(st.sampled_from(pairs)) for pairs in space.pairs]
    bits = space.settings(BitSettings.uniform(4, 4, 3), chosen)
    assert space.chosen(bits) == tuple(chosen)
    shares = np.array(reach)
    costs = space.costs(MODEL.parts, shares)
    total = sum(row[pairs.index(pair)] for row, pairs, pair in zip(costs, space.pairs, chosen, strict=True))
    assert total == pytest.approx(bops(MODEL.parts, bits, shares), rel=1e-12)
