"""Position embeddings stretched to another image size as each library stretches them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.models import ViT, load_backbone, save_backbone
from maqee.models.config import PositionResize
from maqee.models.load import build_backbone
from maqee.models.positions import resize_positions
from tests.helpers import max_difference
from tests.models.foreign import assert_parity, images, make

SIZES = [(48, 48), (16, 16), (48, 32), (24, 56), (8, 8)]
RULES: list[PositionResize] = ["plain", "antialias", "offset"]
_STRETCH = {"vit": {"interpolate_pos_encoding": True}, "deit": {"interpolate_pos_encoding": True}, "dinov2": {}}


@pytest.mark.parametrize("kind", _STRETCH)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_loading_at_another_size(kind: str, size: tuple[int, int]) -> None:
    theirs = make(kind)
    ours = load_backbone(theirs, image_size=size)
    assert ours.config.image_size == ours.preprocessing.image_size == size
    assert_parity(ours, theirs, images(*size), **_STRETCH[kind])


@pytest.mark.parametrize("kind", _STRETCH)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_feeding_another_size(kind: str, size: tuple[int, int]) -> None:
    theirs = make(kind)
    assert_parity(load_backbone(theirs), theirs, images(*size), **_STRETCH[kind])


def test_one_number_means_a_square() -> None:
    assert load_backbone("test-vit", image_size=64).config.image_size == (64, 64)


def test_size_that_patches_do_not_fill_is_refused() -> None:
    model = load_backbone("test-vit")
    with pytest.raises(MaqeeError, match=r"33x32.*patch.*8"):
        model(images(33, 32))


@given(
    prefix=st.integers(1, 2),
    old=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    new=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    rule=st.sampled_from(RULES),
)
def test_special_tokens_and_constants_stay(
    prefix: int, old: tuple[int, int], new: tuple[int, int], rule: PositionResize
) -> None:
    special = torch.randn(1, prefix, 3)
    constant = torch.randn(1, 1, 3)
    positions = torch.cat([special, constant.expand(1, old[0] * old[1], 3)], dim=1)
    resized = resize_positions(positions, prefix, old, new, rule)
    assert resized.shape == (1, prefix + new[0] * new[1], 3)
    assert torch.equal(resized[:, :prefix], special)
    assert max_difference(resized[:, prefix:], constant.expand(1, new[0] * new[1], 3)) < 1e-5


@given(grid=st.tuples(st.integers(1, 5), st.integers(1, 5)), rule=st.sampled_from(RULES))
def test_same_grid_changes_nothing(grid: tuple[int, int], rule: PositionResize) -> None:
    positions = torch.randn(1, 1 + grid[0] * grid[1], 3)
    assert torch.equal(resize_positions(positions, 1, grid, grid, rule), positions)


@given(
    old=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    new=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    rule=st.sampled_from(RULES),
)
def test_rows_and_columns_are_not_confused(old: tuple[int, int], new: tuple[int, int], rule: PositionResize) -> None:
    """Transposing the picture before or after resizing is the same."""
    picture = torch.randn(1, *old, 3)
    turned = resize_positions(picture.transpose(1, 2).reshape(1, -1, 3), 0, old[::-1], new[::-1], rule)
    straight = resize_positions(picture.reshape(1, -1, 3), 0, old, new, rule)
    assert max_difference(turned.view(1, *new[::-1], 3).transpose(1, 2), straight.view(1, *new, 3)) < 1e-5


def test_half_precision_positions_are_resized_in_full() -> None:
    model = load_backbone(make("vit"))
    assert isinstance(model, ViT)
    exact = resize_positions(model.embedding.position.half().float(), 1, (4, 4), (6, 5))
    assert torch.equal(resize_positions(model.embedding.position.half(), 1, (4, 4), (6, 5)), exact.half())


def _of_timm(picture: Tensor, new: tuple[int, int]) -> Tensor:
    """resample_abs_pos_embed."""
    return F.interpolate(picture, size=new, mode="bicubic", antialias=True)


def _of_transformers(picture: Tensor, new: tuple[int, int]) -> Tensor:
    """interpolate_pos_encoding."""
    return F.interpolate(picture, size=new, mode="bicubic", align_corners=False)


def _of_dinov2(picture: Tensor, new: tuple[int, int]) -> Tensor:
    """interpolate_pos_encoding of the original release, which knows square grids only."""
    side = picture.shape[2]
    factor = (float(new[0] + 0.1) / side, float(new[1] + 0.1) / side)
    return F.interpolate(picture, scale_factor=factor, mode="bicubic")


ORIGINS: dict[PositionResize, Callable[[Tensor, tuple[int, int]], Tensor]] = {
    "plain": _of_transformers,
    "antialias": _of_timm,
    "offset": _of_dinov2,
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("new", [(14, 11), (9, 16), (37, 37), (16, 16), (15, 14)], ids=str)
def test_each_rule_is_the_one_of_its_origin(rule: PositionResize, new: tuple[int, int]) -> None:
    """Smaller, larger, both at once, and by single patches."""
    positions = torch.randn(1, 1 + 14 * 14, 8, generator=torch.Generator().manual_seed(0))
    picture = positions[:, 1:].transpose(1, 2).unflatten(2, (14, 14))
    expected = ORIGINS[rule](picture, new).flatten(2).transpose(1, 2)
    resized = resize_positions(positions, 1, (14, 14), new, rule)[:, 1:]
    assert max_difference(resized, expected) <= 1e-6
    for other in set(RULES) - {rule}:
        assert max_difference(resize_positions(positions, 1, (14, 14), new, other)[:, 1:], expected) > 1e-3


@given(old=st.integers(1, 40), new=st.integers(1, 80))
def test_offset_never_gains_or_loses_a_row(old: int, new: int) -> None:
    """A step is stated instead of a size, and the size follows from it."""
    resized = resize_positions(torch.zeros(1, old * old, 1), 0, (old, old), (new, new), "offset")
    assert resized.shape == (1, new * new, 1)


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_used_on_loading_and_on_the_fly_and_is_saved(rule: PositionResize, tmp_path: Path) -> None:
    config = replace(load_vit("test-vit").config, position_resize=rule)
    save_backbone(build_backbone(config), tmp_path)
    on_the_fly, loaded = load_vit(tmp_path), load_vit(tmp_path, image_size=(48, 24))
    position = resize_positions(on_the_fly.embedding.position, 1, (4, 4), (6, 3), rule)
    assert torch.equal(loaded.embedding.position, position)
    assert torch.equal(loaded(images(48, 24)), on_the_fly(images(48, 24)))
    assert loaded.config.position_resize == rule


def load_vit(source: str | Path, **options: Any) -> ViT:
    model = load_backbone(source, **options)
    assert isinstance(model, ViT)
    return model.eval()
