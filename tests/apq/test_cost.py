"""BOPs: worked out by hand, against the published figures, and against torch's own counter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from maqee.apq import BitSettings, bops, part_bops, part_reach, total_macs, utilization
from maqee.apq.cost import closed_blocks, closing_saves, full_precision_bops
from maqee.errors import MaqeeError
from maqee.exits import add_exits
from maqee.models.load import on_meta
from maqee.models.presets import presets
from maqee.parts import Part, block_parts
from maqee.policy import NEVER
from maqee.widths import BlockWidths
from tests.helpers import by_block

PARTS = [
    Part("patch", "patch", 10, 0),
    Part("block 1 linear", "linear", 100, 1),
    Part("block 1 attention", "attention", 7, 1),
    Part("head", "head", 5, 1),
    Part("merge", "merge", 3, 2),
    Part("block 2 linear", "linear", 100, 2),
    Part("classifier", "classifier", 2, 0),
]
TINY_PARTS = on_meta(presets["vit-tiny"]).parts()


def test_by_hand() -> None:
    bits = replace(by_block((3, 5)), head=(4, 4), merge=(8, 8))
    # patch 10*1024, linear 100*3*4, attention 7*16, head 5*16, merge 3*64, linear 100*5*4, classifier 2*1024
    expected = [10240, 1200, 112, 80, 192, 2000, 2048]
    assert part_bops(PARTS, bits).tolist() == expected
    assert bops(PARTS, bits) == sum(expected)
    # A quarter of the images goes on behind block 1: merging and block 2 count a quarter.
    reach = utilization([0.75, 0.25], [1, 2], 2)
    assert reach.tolist() == [1.0, 0.25]
    assert bops(PARTS, bits, reach) == 10240 + 1200 + 112 + 80 + 0.25 * (192 + 2000) + 2048
    assert total_macs(PARTS, reach) == 10 + 100 + 7 + 5 + 0.25 * 103 + 2


def test_heads_of_closed_exits_are_not_charged() -> None:
    """Heads after blocks 1 and 2 of 3 are 5 and 7 MACs, at 4/4 bits 80 and 112 BOPs; one at the end is 9 and stays."""
    blocks = [Part(f"block {number} linear", "linear", 100, number) for number in (1, 2, 3)]
    early = [Part("exit 1 head", "head", 5, 1, "0"), Part("exit 2 head", "head", 7, 2, "1")]
    parts, bits = [*blocks, *early, Part("exit 3 head", "head", 9, 3, "2")], by_block((4, 4, 4))
    reach = utilization([0.0, 0.5, 0.5], [1, 2, 3], 3)
    assert closed_blocks((NEVER, 0.7), (1, 2, 3)) == (1,)
    assert bops(parts, bits, reach, closed=(1,)) == 1600 + 1600 + 800 + 112 + 72
    assert total_macs(parts, reach, closed=(1,)) == 100 + 100 + 50 + 7 + 4.5
    assert part_reach(parts, reach, closed=(1, 2)).tolist() == [1, 1, 0.5, 0, 0, 0.5]
    assert closing_saves([80, 112], (0.5, 0.7)).tolist() == [0, 0, 0]
    assert closing_saves([80, 112], (NEVER, 0.7)).tolist() == [0, 80, 80]
    assert closing_saves([80, 112], (0.5, NEVER)).tolist() == [0, 0, 112]
    assert closing_saves([80, 112], (NEVER, NEVER)).tolist() == [0, 80, 192]
    assert full_precision_bops(parts, 3) == 1024 * 309


def test_layers_of_a_block_with_different_widths() -> None:
    """qkv 10 x 3 x 5, attention 7 x 6 x 6, projection 20 x 4 x 2, fc1 30 x 2 x 8, fc2 40 x 8 x 3; head 5 x 6 x 7."""
    macs = {"qkv": 10, "attention": 7, "projection": 20, "fc1": 30, "fc2": 40}
    heads = [Part("exit 1 head", "head", 5, 1, "0"), Part("exit 2 head", "head", 9, 2, "1")]
    parts = [*block_parts(1, macs), heads[0], *block_parts(2, macs), heads[1]]
    mixed = BlockWidths(qkv=(3, 5), attention=(6, 6), projection=(4, 2), fc1=(2, 8), fc2=(8, 3))
    bits = BitSettings(blocks=(mixed, BlockWidths.uniform(3, 4)), heads=((6, 7), (5, 1)))
    expected = [150, 252, 160, 480, 960, 210, 120, 112, 240, 360, 480, 45]
    assert part_bops(parts, bits).tolist() == expected
    assert bops(parts, bits, utilization([0.5, 0.5], [1, 2], 2)) == sum(expected[:6]) + 0.5 * sum(expected[6:])


@pytest.mark.parametrize(
    ("preset", "bits", "exits", "expected"),
    [
        ("vit-base", 32, None, 1.7985e13),
        ("vit-base", 4, None, 3.983e11),
        ("vit-base", 4, "lgvit", 4.086e11),
        ("deit-base", 32, None, 1.7985e13),
        ("vit-large", 4, None, 11.41e11),
        ("swin-base", 4, None, 2.673e11),
        ("swin-base", 32, None, 1.580e13),
    ],
)
def test_published_figures(preset: str, bits: int, exits: str | None, expected: float) -> None:
    backbone = on_meta(presets[preset])
    with torch.device("meta"):
        parts = add_exits(backbone, exits).parts() if exits else backbone.parts()
    assert bops(parts, BitSettings.uniform(bits, bits, backbone.depth)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("mean_exit", "table"),
    [(8.77, 3.23), (9.28, 3.35), (8.93, 3.27), (8.71, 3.22), (10.83, 3.71), (9.88, 3.49), (10.26, 3.58), (11.42, 3.85)],
)
def test_rows_of_the_papers_vit_ee_table(mean_exit: float, table: float) -> None:
    """ViT-B and DeiT rows, in 1e11, where the paper charges no head: linear in the mean exit."""
    backbone = on_meta(presets["vit-base"])
    share = (mean_exit - 4) / 8
    reach = utilization([1 - share, share], [4, 12], 12)
    cost = bops(backbone.parts(), BitSettings.uniform(4, 4, 12), reach)
    assert round(cost / 1e11, 2) == table


@pytest.mark.parametrize("preset", ["vit-tiny", "deit-tiny-distilled", "dinov2-small", "swin-tiny", "test-swin"])
def test_macs_agree_with_the_flop_counter(preset: str) -> None:
    config = presets[preset]
    backbone = on_meta(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
        backbone(torch.randn(1, config.channels, *config.image_size))
    assert counter.get_total_flops() == 2 * total_macs(backbone.parts())


@given(
    mass=st.lists(st.floats(0.01, 1), min_size=5, max_size=5),
    bits=st.lists(st.integers(2, 8), min_size=12, max_size=12),
)
def test_utilization_and_cost_are_monotone(mass: list[float], bits: list[int]) -> None:
    shares = np.array(mass) / sum(mass)
    reach = utilization(shares.tolist(), [4, 6, 8, 10, 12], 12)
    assert reach[0] == pytest.approx(1.0)
    assert (np.diff(reach) <= 1e-12).all()
    assert reach.sum() == pytest.approx(float(shares @ np.array([4, 6, 8, 10, 12])))  # sum of u is the mean exit
    settings, parts = by_block(bits), TINY_PARTS
    more = by_block((bits[0] + 1, *bits[1:]))
    assert bops(parts, settings, reach) <= bops(parts, settings)
    assert bops(parts, settings, reach) < bops(parts, more, reach)


@pytest.mark.parametrize(
    ("mass", "message"),
    [([0.5, 0.4], "sum to 1"), ([1.5, -0.5], "sum to 1"), ([1.0], "1 shares for 2"), ([float("nan"), 1.0], "sum to 1")],
)
def test_bad_exit_mass(mass: list[float], message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        utilization(mass, [1, 2], 2)


@pytest.mark.parametrize("bits", [0, 33, -1])
def test_bad_bits(bits: int) -> None:
    with pytest.raises(MaqeeError, match="1 to 32"):
        BitSettings.uniform(bits, 4, 2)
