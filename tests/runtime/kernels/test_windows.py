"""Windows are where Swin has them, without rolling or cutting anything."""

from __future__ import annotations

import math

import pytest
import torch

from maqee.models.swin import SwinBlock, to_windows


def block(shifted: bool, grid: tuple[int, int] = (8, 4)) -> SwinBlock:
    made = SwinBlock(8, 2, 16, grid, 4 if min(grid) > 4 else 2, shifted=shifted)
    torch.nn.init.normal_(made.attn.bias_table)
    return made


@pytest.mark.parametrize("shifted", [False, True])
def test_places(shifted: bool) -> None:
    from maqee.runtime.kernels.windows import Windows

    swin = block(shifted)
    windows = Windows.of(swin)
    assert windows is not None
    assert (windows.number, windows.tokens) == (8, 4)
    tokens = torch.randn(3, 32, 8)
    picture = tokens.view(3, 8, 4, 8)
    rolled = picture.roll((-swin.shift, -swin.shift), dims=(1, 2)) if swin.shift else picture
    assert bool(swin.shift) == shifted
    assert torch.equal(tokens[:, windows.places.long()].flatten(0, 1), to_windows(rolled, swin.window))
    assert sorted(windows.places.flatten().tolist()) == list(range(32))  # every token once


def test_the_first_window_by_hand() -> None:
    """Rows of four tokens and windows of two by two: 0 1 / 4 5; shifted by one, 5 6 / 9 10."""
    from maqee.runtime.kernels.windows import Windows

    plain, shifted = Windows.of(block(False)), Windows.of(block(True))
    assert plain is not None
    assert shifted is not None
    assert plain.places[0].tolist() == [0, 1, 4, 5]
    assert shifted.places[0].tolist() == [5, 6, 9, 10]
    assert shifted.places[-1].tolist() == [31, 28, 3, 0]  # the corners of the picture meet in the last


@pytest.mark.parametrize("shifted", [False, True])
def test_bias_in_octaves(shifted: bool) -> None:
    from maqee.runtime.kernels.windows import Windows

    swin = block(shifted)
    windows = Windows.of(swin)
    assert windows is not None
    expected = swin.attn.position_bias() if swin.mask is None else swin.attn.position_bias() + swin.mask
    assert windows.bias.shape == (8 if shifted else 1, 2, 4, 4)
    assert torch.allclose(windows.bias / math.log2(math.e), expected, rtol=1e-6, atol=1e-6)


def test_a_picture_that_is_filled_up_has_none() -> None:
    from maqee.runtime.kernels.windows import Windows

    assert Windows.of(block(False, (6, 5))) is None
