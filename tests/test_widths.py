"""Widths by layer: worked out by hand, and the same again after a round trip through JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from maqee.errors import MaqeeError
from maqee.parts import Part
from maqee.widths import LAYERS, BitSettings, BlockWidths

MIXED = BlockWidths(qkv=(3, 5), attention=(6, 6), projection=(4, 2), fc1=(2, 8), fc2=(8, 3))
SETTINGS = BitSettings(
    blocks=(MIXED, BlockWidths.uniform(4, 5)), patch=(8, 8), classifier=(7, 32), head=(3, 6), merge=(5, 7)
)
_PAIRS = st.tuples(st.integers(1, 32), st.integers(1, 32))
_SETTINGS = st.builds(
    BitSettings,
    blocks=st.lists(st.builds(BlockWidths, *[_PAIRS] * 5), min_size=1, max_size=4).map(tuple),
    patch=_PAIRS, classifier=_PAIRS, head=_PAIRS, heads=st.lists(_PAIRS, max_size=3).map(tuple), merge=_PAIRS,
)  # fmt: skip


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Part("patch", "patch", 1, 0), (8, 8)),
        (Part("classifier", "classifier", 1, 0), (7, 32)),
        (Part("merge", "merge", 1, 1), (5, 7)),
        (Part("head", "head", 1, 1), (3, 6)),
        (Part("exit 2 head", "head", 1, 1, "1"), (3, 6)),
        (Part("block 1 qkv", "linear", 1, 1, "qkv"), (3, 5)),
        (Part("block 1 attention", "attention", 1, 1, "attention"), (6, 6)),
        (Part("block 1 projection", "linear", 1, 1, "projection"), (4, 2)),
        (Part("block 1 fc1", "linear", 1, 1, "fc1"), (2, 8)),
        (Part("block 1 fc2", "linear", 1, 1, "fc2"), (8, 3)),
        (Part("block 1 attention", "attention", 1, 1), (6, 6)),  # as older files have it
        (Part("block 2 linear", "linear", 1, 2), (4, 5)),
        (Part("block 2 attention", "attention", 1, 2), (5, 5)),
    ],
    ids=str,
)
def test_the_widths_of_a_part(part: Part, expected: tuple[int, int]) -> None:
    assert SETTINGS.of(part) == expected


def test_heads_that_differ() -> None:
    several = replace(SETTINGS, heads=((2, 3), (4, 5)))
    assert [several.of(Part("head", "head", 1, 1, number)) for number in ("0", "1", "")] == [(2, 3), (4, 5), (2, 3)]


def test_one_part_for_layers_that_differ() -> None:
    with pytest.raises(MaqeeError, match="block 1 linear stands for layers with different widths"):
        SETTINGS.of(Part("block 1 linear", "linear", 1, 1))


def test_weights_of_blocks() -> None:
    assert SETTINGS.mean_weights == ((3 + 4 + 2 + 8) / 4, 4.0)  # attention has no weights
    assert SETTINGS.block_weights[0] == 3  # all four differ: the first of them
    assert replace(SETTINGS, blocks=SETTINGS.blocks[1:]).block_weights == (4,)
    one_width = MIXED._replace(projection=(3, 2), fc1=(3, 8), fc2=(3, 3))  # activations may differ
    assert SETTINGS.with_block(1, one_width).block_weights == (3, 4)


def test_other_weights_keep_the_activations() -> None:
    other = SETTINGS.with_weights((5, 3))
    assert other.blocks == (
        BlockWidths(qkv=(5, 5), attention=(6, 6), projection=(5, 2), fc1=(5, 8), fc2=(5, 3)),
        BlockWidths(qkv=(3, 5), attention=(5, 5), projection=(3, 5), fc1=(3, 5), fc2=(3, 5)),
    )
    assert replace(other, blocks=SETTINGS.blocks) == SETTINGS
    assert other.block_weights == (5, 3)


@pytest.mark.parametrize("weights", [(), (4,), (4, 4, 4)])
def test_weights_for_another_number_of_blocks(weights: tuple[int, ...]) -> None:
    with pytest.raises(MaqeeError, match=f"{len(weights)} widths for 2 blocks"):
        SETTINGS.with_weights(weights)


def test_one_other_block() -> None:
    uniform = BitSettings.uniform(4, 6, 3)
    changed = uniform.with_block(2, MIXED)
    assert changed.blocks == (BlockWidths.uniform(4, 6), MIXED, BlockWidths.uniform(4, 6))
    assert uniform.blocks == (BlockWidths.uniform(4, 6),) * 3


def test_uniform() -> None:
    uniform = BitSettings.uniform(3, 6, 2)
    assert uniform.depth == 2
    assert set(uniform.blocks) == {BlockWidths((3, 6), (6, 6), (3, 6), (3, 6), (3, 6))}
    assert (uniform.head, uniform.merge, uniform.patch, uniform.classifier) == ((3, 6), (3, 6), (32, 32), (32, 32))
    assert MIXED.linear == ((3, 5), (4, 2), (2, 8), (8, 3))
    assert LAYERS == ("qkv", "attention", "projection", "fc1", "fc2")


@pytest.mark.parametrize("bits", [0, 33, -1])
@pytest.mark.parametrize("name", ["patch", "classifier", "head", "merge", "heads", "blocks"])
def test_impossible_widths(name: str, bits: int) -> None:
    bad = (4, bits)
    value: Any = {"heads": ((4, 4), bad), "blocks": (MIXED, MIXED._replace(fc2=bad))}.get(name, bad)
    with pytest.raises(MaqeeError, match=f"1 to 32, not {bits}"):
        replace(SETTINGS, **{name: value})


def test_names_of_layers_in_json() -> None:
    stored = json.loads(json.dumps(SETTINGS.to_json()))
    assert stored["blocks"][0] == {
        "qkv": [3, 5],
        "attention": [6, 6],
        "projection": [4, 2],
        "fc1": [2, 8],
        "fc2": [8, 3],
    }
    assert stored["head"] == [3, 6]


@given(_SETTINGS)
def test_round_trip(settings: BitSettings) -> None:
    adapter = TypeAdapter(BitSettings)
    assert adapter.validate_json(json.dumps(settings.to_json()), strict=True) == settings
    assert adapter.validate_json(adapter.dump_json(settings), strict=True) == settings  # layers as a list


@given(_SETTINGS, st.data())
def test_weights_come_back(settings: BitSettings, data: st.DataObject) -> None:
    weights = tuple(data.draw(st.integers(1, 32)) for _ in settings.blocks)
    changed = settings.with_weights(weights)
    assert changed.block_weights == weights
    assert [[pair[1] for pair in block] for block in changed.blocks] == [
        [pair[1] for pair in block] for block in settings.blocks
    ]
