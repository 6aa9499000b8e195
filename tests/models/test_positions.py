"""Position embeddings stretched to another image size as transformers stretches them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maqee.errors import MaqeeError
from maqee.models import ViT, load_backbone
from maqee.models.positions import resize_positions
from tests.helpers import max_difference
from tests.models.foreign import assert_parity, images, make

SIZES = [(48, 48), (16, 16), (48, 32), (24, 56), (8, 8)]
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
)
def test_special_tokens_and_constants_stay(prefix: int, old: tuple[int, int], new: tuple[int, int]) -> None:
    special = torch.randn(1, prefix, 3)
    constant = torch.randn(1, 1, 3)
    positions = torch.cat([special, constant.expand(1, old[0] * old[1], 3)], dim=1)
    resized = resize_positions(positions, prefix, old, new)
    assert resized.shape == (1, prefix + new[0] * new[1], 3)
    assert torch.equal(resized[:, :prefix], special)
    assert max_difference(resized[:, prefix:], constant.expand(1, new[0] * new[1], 3)) < 1e-5


@given(grid=st.tuples(st.integers(1, 5), st.integers(1, 5)))
def test_same_grid_changes_nothing(grid: tuple[int, int]) -> None:
    positions = torch.randn(1, 1 + grid[0] * grid[1], 3)
    assert torch.equal(resize_positions(positions, 1, grid, grid), positions)


@given(old=st.tuples(st.integers(2, 5), st.integers(2, 5)), new=st.tuples(st.integers(2, 5), st.integers(2, 5)))
def test_rows_and_columns_are_not_confused(old: tuple[int, int], new: tuple[int, int]) -> None:
    """Transposing the picture before or after resizing is the same."""
    picture = torch.randn(1, *old, 3)
    turned = resize_positions(picture.transpose(1, 2).reshape(1, -1, 3), 0, old[::-1], new[::-1])
    straight = resize_positions(picture.reshape(1, -1, 3), 0, old, new)
    assert max_difference(turned.view(1, *new[::-1], 3).transpose(1, 2), straight.view(1, *new, 3)) < 1e-5


def test_half_precision_positions_are_resized_in_full() -> None:
    model = load_backbone(make("vit"))
    assert isinstance(model, ViT)
    exact = resize_positions(model.embedding.position.half().float(), 1, (4, 4), (6, 5))
    assert torch.equal(resize_positions(model.embedding.position.half(), 1, (4, 4), (6, 5)), exact.half())
