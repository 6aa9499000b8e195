"""Default positions and head kinds."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, add_exits, default_positions, head_kinds
from maqee.models import Backbone, load_backbone
from maqee.models.config import ViTConfig
from maqee.models.load import on_meta
from maqee.models.presets import presets


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("vit-base", (4, 6, 8, 10)),
        ("deit-small-distilled", (4, 6, 8, 10)),
        ("dinov2-small", (4, 6, 8, 10)),
        ("vit-large", (8, 12, 16, 20)),
        ("swin-base", (2, 4, 14, 20)),
        ("swin-small", (2, 4, 14, 20)),
        ("swin-tiny", (4, 6, 8, 10)),
    ],
)
def test_positions_of_the_paper(preset: str, expected: tuple[int, ...]) -> None:
    assert default_positions(on_meta(presets[preset])) == expected


@cache
def deep(depth: int) -> Backbone:
    return on_meta(ViTConfig(image_size=(16, 16), patch_size=8, dim=8, depth=depth, heads=1, mlp_dim=8))


@given(depth=st.integers(2, 30), count=st.integers(1, 8))
def test_positions_are_always_legal(depth: int, count: int) -> None:
    positions = default_positions(deep(depth), count)
    assert list(positions) == sorted(set(positions))
    assert 1 <= positions[0] <= positions[-1] < depth
    assert len(positions) <= count


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "l3"),
        (2, "l3 g2"),
        (3, "l3 l1 g2"),
        (4, "l3 l1 g2 g3"),
        (6, "l3 l1 g2 g2 g3 g3"),
        (8, "l3 l3 l1 l1 g2 g2 g3 g3"),
    ],
)
def test_lgvit_sequences(count: int, expected: str) -> None:
    short = {"local-3x3": "l3", "local-1x1": "l1", "global-s2": "g2", "global-s3": "g3"}
    kinds = head_kinds("lgvit", load_backbone("test-vit"), count)
    assert " ".join(short[kind] for kind in kinds) == expected


def test_swin_sequence_and_schemes() -> None:
    swin, vit = load_backbone("test-swin"), load_backbone("test-vit")
    assert head_kinds("lgvit", swin, 4) == ("local-3x3", "local-1x1", "global-s1", "global-s2")
    assert head_kinds("vit-ee", vit, 3) == ("vit", "vit", "vit")
    assert head_kinds("lgvit-raw", vit, 2) == ("local-3x3-raw", "global-s2-raw")
    assert head_kinds("mixer", vit, 2) == ("mixer", "mixer")


@pytest.mark.parametrize(
    ("positions", "kinds", "message"),
    [
        ((1, 2), ("mlp",), "2 exit positions and 1 head kinds"),
        ((2, 1), ("mlp", "mlp"), "must ascend"),
        ((1, 1), ("mlp", "mlp"), "must ascend"),
        ((0, 2), ("mlp", "mlp"), "must ascend within 1..3"),
        ((1, 4), ("mlp", "mlp"), "must ascend within 1..3"),
        ((1,), ("mpl",), "did you mean mlp"),
    ],
)
def test_bad_positions(positions: tuple[int, ...], kinds: tuple[str, ...], message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        EarlyExitModel(load_backbone("test-vit"), positions, kinds)


def test_unknown_scheme_and_count() -> None:
    with pytest.raises(MaqeeError, match="did you mean lgvit"):
        add_exits(load_backbone("test-vit"), "lgvt")
    with pytest.raises(MaqeeError, match="at least 1"):
        default_positions(load_backbone("test-vit"), 0)
