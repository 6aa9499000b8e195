"""Swin of ours computes what Swin of transformers computes, layer by layer, whatever fits or does not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from maqee.models import Swin, load_backbone
from maqee.models.swin import SwinBlock, from_windows, relative_positions, shift_mask, to_windows
from tests.models.foreign import assert_parity, images, make

SHAPES: dict[str, dict[str, Any]] = {
    "windows fit": {},
    "windows and merging need padding": {"image_size": (44, 36), "patch_size": 4},  # 11x9, then 6x5 tokens
    "image needs padding": {"image_size": 30, "patch_size": 4},
    "window is the whole grid": {"image_size": 16, "patch_size": 4, "depths": [2], "num_heads": [2]},
    "window is the last grid": {"image_size": 32, "patch_size": 4},
    "odd window": {"image_size": 26, "window_size": 3},
    "three stages": {"depths": [2, 4, 2], "num_heads": [2, 4, 8]},
    "four stages": {"image_size": 64, "depths": [1, 2, 1, 2], "num_heads": [1, 2, 4, 8]},
    "odd number of blocks in a stage": {"depths": [3, 1]},
    "no bias": {"qkv_bias": False},
    "wide MLP": {"mlp_ratio": 3.5},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_every_layer_agree(shape: str) -> None:
    theirs = make("swin", **SHAPES[shape])
    size = SHAPES[shape].get("image_size", 32)
    assert_parity(load_backbone(theirs), theirs, images(*([size] if isinstance(size, int) else size)))


def test_the_padded_shape_really_pads() -> None:
    """Guards the table above: the cases must exercise what their names say."""
    model = load_backbone(make("swin", **SHAPES["windows and merging need padding"]))
    assert isinstance(model, Swin)
    blocks = [block for block in model.blocks if isinstance(block, SwinBlock)]
    assert [block.grid for block in blocks] == [(11, 9), (11, 9), (6, 5), (6, 5)]
    assert [block.padded for block in blocks] == [(12, 12), (12, 12), (8, 8), (8, 8)]
    assert [block.shift for block in blocks] == [0, 2, 0, 2]
    whole = load_backbone(make("swin", **SHAPES["window is the whole grid"]))
    assert [block.shift for block in whole.blocks if isinstance(block, SwinBlock)] == [0, 0]


@settings(max_examples=15)
@given(
    height=st.integers(8, 40),
    width=st.integers(8, 40),
    patch=st.integers(1, 3),
    window=st.integers(2, 5),
    depths=st.lists(st.integers(1, 3), min_size=1, max_size=2),
)
def test_any_size_agrees(height: int, width: int, patch: int, window: int, depths: list[int]) -> None:
    smallest = -(-min(height, width) // patch) // 2 ** (len(depths) - 1)
    assume(smallest >= window)  # transformers itself cannot run a window larger than the grid
    heads = [1, 2][: len(depths)]
    theirs = make(
        "swin",
        image_size=(height, width),
        patch_size=patch,
        window_size=window,
        embed_dim=8,
        depths=depths,
        num_heads=heads,
    )
    assert_parity(load_backbone(theirs), theirs, images(height, width))


@pytest.mark.parametrize("size", [(48, 48), (44, 50)])
def test_another_image_size_needs_no_new_weights(size: tuple[int, int]) -> None:
    theirs = make("swin")
    ours = load_backbone(theirs, image_size=size)
    assert ours.config.image_size == size
    assert_parity(ours, theirs, images(*size))


@given(rows=st.integers(1, 4), columns=st.integers(1, 4), window=st.integers(1, 4), batch=st.integers(1, 3))
def test_windows_and_back(rows: int, columns: int, window: int, batch: int) -> None:
    picture = torch.randn(batch, rows * window, columns * window, 2)
    windows = to_windows(picture, window)
    assert windows.shape == (batch * rows * columns, window**2, 2)
    assert torch.equal(windows[0], picture[0, :window, :window].reshape(-1, 2))
    assert torch.equal(from_windows(windows, window, (rows * window, columns * window)), picture)


@given(window=st.integers(1, 7))
def test_relative_positions_name_each_offset_once(window: int) -> None:
    table = relative_positions(window).view(window, window, window, window)
    offsets: dict[int, set[tuple[int, int]]] = {}
    for a, b, c, d in torch.cartesian_prod(*[torch.arange(window)] * 4).view(-1, 4).tolist():
        offsets.setdefault(int(table[a, b, c, d]), set()).add((a - c, b - d))
    assert all(len(pairs) == 1 for pairs in offsets.values())
    assert sorted(offsets) == list(range((2 * window - 1) ** 2))


@given(rows=st.integers(2, 4), columns=st.integers(2, 4), window=st.integers(2, 5))
def test_mask_separates_exactly_what_the_roll_brought_together(rows: int, columns: int, window: int) -> None:
    shift = window // 2
    grid = (rows * window, columns * window)
    row, column = (index.float() for index in torch.meshgrid(*map(torch.arange, grid), indexing="ij"))
    rolled = torch.stack([row, column], dim=-1).roll((-shift, -shift), dims=(0, 1))[None]
    place = to_windows(rolled, window)  # where each token of a window really is
    near = ((place[:, :, None] - place[:, None]).abs() < window).all(dim=-1)
    assert torch.equal(shift_mask(grid, window, shift)[:, 0] == 0, near)
