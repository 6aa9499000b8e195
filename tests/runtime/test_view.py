"""Where a model looks: its answers land on the right pixels of the picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from maqee.data.images import resize_and_crop
from maqee.errors import MaqeeError
from maqee.models import Preprocessing
from maqee.runtime import view as view_module
from maqee.runtime.view import View
from maqee.tasks.pixels import IGNORE
from maqee.tasks.segmentation import stretch

CROPPED = Preprocessing(image_size=(40, 40), resize=50)
sides = st.integers(40, 200)


def test_a_box_in_a_cut_out_centre_by_hand() -> None:
    """100 x 200 pixels become 50 x 100, of which rows 5 to 45 and columns 30 to 70 are seen."""
    view = View.of(100, 200, CROPPED)
    assert view == View(picture=(100, 200), scaled=(50, 100), corner=(5, 30), window=(40, 40))
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.25, 0.5, 0.5, 0.75], [-1.0, -1.0, 2.0, 2.0]])
    assert view.to_pixels(boxes).tolist() == [[60, 10, 140, 90], [80, 50, 100, 70], [0, 0, 200, 100]]
    assert not view.sees_all


def test_a_box_in_a_picture_that_is_scaled_as_a_whole() -> None:
    view = View.of(100, 200, Preprocessing(image_size=(32, 48)))
    assert view.sees_all
    assert view.to_pixels(torch.tensor([0.25, 0.5, 0.5, 2.0])).tolist() == [50, 50, 100, 100]


def test_a_picture_smaller_than_the_window() -> None:
    """10 x 20 pixels in the middle of a window of 20 x 40."""
    view = View(picture=(10, 20), scaled=(10, 20), corner=(-5, -10), window=(20, 40))
    assert view.to_pixels(torch.tensor([0.0, 0.25, 0.5, 1.0])).tolist() == [0, 0, 10, 10]
    scores = torch.eye(4).reshape(4, 2, 2)  # a class in each quarter
    mask = view.to_mask(scores)
    assert (mask[:5, :10] == 0).all()
    assert (mask[:5, 10:] == 1).all()
    assert (mask[5:, :10] == 2).all()
    assert (mask[5:, 10:] == 3).all()


@given(
    height=sides,
    width=sides,
    preprocessing=st.sampled_from(
        [
            CROPPED,
            Preprocessing(image_size=(32, 48)),
            Preprocessing(image_size=(40, 40), resize=51, rounding="timm"),
            Preprocessing(image_size=(40, 40), resize=51, rounding="transformers"),
            Preprocessing(image_size=(40, 36), resize=(43, 57)),
            Preprocessing(image_size=(40, 40), resize="crop"),
        ]
    ),
)
def test_the_view_is_what_is_cut_out_of_pictures(height: int, width: int, preprocessing: Preprocessing) -> None:
    """A picture whose values are its columns (rows) says itself where the window's pixels come from."""
    view = View.of(height, width, preprocessing)
    rows, columns = np.mgrid[:height, :width].astype(np.float32) + 0.5
    (window_height, window_width), inside = view.window, slice(12, -12)  # filters are cut off at the edges
    for values, side in ((columns, 0), (rows, 1)):
        seen = np.array(resize_and_crop(Image.fromarray(values), preprocessing))
        shares = torch.zeros(window_height, window_width, 4, dtype=torch.float64)
        shares[..., 0] = (torch.arange(window_width) + 0.5) / window_width
        shares[..., 1] = ((torch.arange(window_height) + 0.5) / window_height)[:, None]
        expected = view.to_pixels(shares)[..., side].numpy()
        # A filter with few samples is off by some hundredths of a pixel; a wrong corner would be by half of one.
        assert np.abs(seen - expected)[inside, inside].max() < 0.1


def test_a_mask_of_a_cut_out_centre_by_hand() -> None:
    view = View.of(100, 200, CROPPED)
    mask = view.to_mask(torch.eye(4).reshape(4, 2, 2))
    assert mask.shape == (100, 200)
    assert mask.dtype == np.uint8
    seen = mask[10:90, 60:140]
    assert (mask == IGNORE).sum() == 100 * 200 - 80 * 80
    assert (seen != IGNORE).all()
    assert [int(seen[y, x]) for y, x in ((0, 0), (0, 79), (79, 0), (79, 79), (38, 38), (41, 41))] == [0, 1, 2, 3, 0, 3]


@pytest.mark.parametrize("size", [(33, 47), (7, 90), (3, 2)])
def test_a_mask_of_the_whole_picture_is_that_of_evaluation(size: tuple[int, int]) -> None:
    scores = torch.randn(6, 5, 4)
    mask = View.of(*size, Preprocessing(image_size=(40, 32))).to_mask(scores)
    assert np.array_equal(mask, stretch(scores[None], size).argmax(dim=1)[0].numpy())


def test_a_mask_of_a_window_at_the_pictures_scale_is_that_of_evaluation_there() -> None:
    scores = torch.randn(6, 5, 4)
    mask = View(picture=(60, 50), scaled=(60, 50), corner=(7, 3), window=(40, 32)).to_mask(scores)
    wanted = stretch(scores[None], (40, 32))[0]
    best = wanted.topk(2, dim=0).values
    clear = (best[0] - best[1] > 1e-4).numpy()  # elsewhere rounding decides
    assert clear.mean() > 0.99
    assert np.array_equal(mask[7:47, 3:35][clear], wanted.argmax(dim=0).numpy()[clear])


@pytest.mark.parametrize("preprocessing", [CROPPED, Preprocessing(image_size=(40, 40))])
def test_few_classes_at_a_time_give_the_same_mask(
    preprocessing: Preprocessing, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, view = torch.randn(11, 5, 5), View.of(70, 90, preprocessing)
    at_once = view.to_mask(scores)
    monkeypatch.setattr(view_module, "_AT_ONCE", 70 * 90 * 3)
    assert np.array_equal(view.to_mask(scores), at_once)


@given(height=sides, width=sides)
def test_pixels_are_unknown_where_their_centre_was_not_seen(height: int, width: int) -> None:
    view = View.of(height, width, CROPPED)
    left, top, right, bottom = view.to_pixels(torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)).tolist()
    rows, columns = np.mgrid[:height, :width] + 0.5
    seen = (rows > top) & (rows < bottom) & (columns > left) & (columns < right)
    edge = np.minimum.reduce([abs(rows - top), abs(rows - bottom), abs(columns - left), abs(columns - right)]) < 1e-6
    assert np.array_equal((view.to_mask(torch.zeros(2, 3, 3)) != IGNORE) | edge, seen | edge)


def test_more_classes_than_a_mask_has_room_for() -> None:
    with pytest.raises(MaqeeError, match="room for 255 classes, and the model has 300"):
        View.whole(8, 8).to_mask(torch.zeros(300, 2, 2))
