"""Each transform against plain loops, Pillow or what can be worked out by hand."""

from __future__ import annotations

import io
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from maqee.data import transforms
from maqee.data.images import FileImages, MemoryEntry, resize_and_crop
from maqee.errors import MaqeeError
from maqee.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing, Resample
from tests.data.makers import Pixels, assert_one_sentence, random_pixels
from tests.helpers import max_difference

STEP = 1 / 255
shares = st.floats(0, 1, width=32)


def _images(count: int = 4, size: int = 7, seed: int = 0) -> Tensor:
    return torch.from_numpy(random_pixels(count, size, seed)).float() / 255


def _middling(count: int, size: int) -> Pixels:
    """Noise away from black and white: there Pillow clips between its two passes, which costs up to 8 / 255."""
    return (random_pixels(count, size) // 2 + 64).astype(np.uint8)


def _pillow(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels.transpose(1, 2, 0))


def _unit(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image).transpose(2, 0, 1).astype(np.float32)) / 255


def test_to_unit_spans_zero_to_one() -> None:
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8)
    assert torch.equal(transforms.to_unit(pixels), torch.tensor([0.0, 0.2, 1.0]))


def test_normalize_by_loop() -> None:
    images = _images()
    settings = Preprocessing(image_size=(7, 7), mean=IMAGENET_MEAN, std=IMAGENET_STD)
    result = transforms.normalize(images, settings)
    for channel in range(3):
        expected = (images[:, channel] - IMAGENET_MEAN[channel]) / IMAGENET_STD[channel]
        assert max_difference(result[:, channel], expected) < 1e-6


@pytest.mark.parametrize(("rescale", "black", "white"), [(1 / 255, 0, 1), (1.0, 0, 255), (2 / 255, 0, 2)])
def test_normalize_to_another_range(rescale: float, black: float, white: float) -> None:
    settings = Preprocessing(image_size=(1, 2), mean=(0.0,), std=(1.0,), rescale=rescale)
    result = transforms.prepare(torch.tensor([0, 255], dtype=torch.uint8).reshape(1, 1, 1, 2), settings)
    assert result.flatten().tolist() == [black, white]


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (45, 71), (16, 16), (9, 50), (31, 5)])
@pytest.mark.parametrize("resample", get_args(Resample))
def test_resize_agrees_with_pillow_up_and_down(resample: Resample, size: tuple[int, int]) -> None:
    for pixels in _middling(2, 32):
        expected = _unit(_pillow(pixels).resize((size[1], size[0]), Image.Resampling[resample.upper()]))
        resized = transforms.resize(transforms.to_unit(torch.from_numpy(pixels))[None], size, resample)[0]
        assert max_difference(resized, expected) <= (0 if resample == "nearest" else 2 * STEP)


@given(size=st.tuples(st.integers(1, 60), st.integers(1, 60)), native=st.integers(1, 60))
def test_the_nearest_pixel_is_pillows(size: tuple[int, int], native: int) -> None:
    pixels = random_pixels(1, native)
    expected = _unit(_pillow(pixels[0]).resize((size[1], size[0]), Image.Resampling.NEAREST))
    assert torch.equal(transforms.resize(transforms.to_unit(torch.from_numpy(pixels)), size, "nearest")[0], expected)


def test_resize_stays_in_range_and_leaves_the_right_size_alone() -> None:
    images = _images(size=6).round()  # blacks and whites, where bicubic overshoots
    larger = transforms.resize(images, (15, 15))
    assert (float(larger.min()), float(larger.max())) == (0, 1)
    assert transforms.resize(images, (6, 6)) is images


@pytest.mark.parametrize("size", [(7, 7), (5, 5), (4, 4), (3, 6), (1, 2)])
def test_centre_crop_leaves_equal_margins(size: tuple[int, int]) -> None:
    images = torch.arange(49.0).reshape(1, 1, 7, 7)
    crop = transforms.centre_crop(images, Preprocessing(image_size=size))
    assert crop.shape[2:] == size
    top, left = divmod(int(crop[0, 0, 0, 0]), 7)
    for before, kept in ((top, size[0]), (left, size[1])):
        assert abs(before - (7 - kept - before)) <= 1
    assert torch.equal(crop, images[:, :, top : top + size[0], left : left + size[1]])


@pytest.mark.parametrize(
    ("image_size", "resize"),
    [
        ((32, 32), 32),
        ((16, 16), None),
        ((40, 24), None),
        ((32, 32), 40),
        ((12, 20), 24),
        ((48, 48), 40),
        ((30, 44), 32),
    ],
)
def test_prepare_agrees_with_what_file_readers_do(image_size: tuple[int, int], resize: int | None) -> None:
    settings = Preprocessing(image_size=image_size, resize=resize, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    pixels = np.ascontiguousarray(_middling(2, 36)[:, :, :33])  # not square
    result = transforms.prepare(torch.from_numpy(pixels), settings)
    assert result.shape == (2, 3, *image_size)
    for image, prepared in zip(pixels, result, strict=True):
        expected = transforms.normalize(_unit(resize_and_crop(_pillow(image), settings))[None], settings)[0]
        assert max_difference(prepared, expected) <= 2 * STEP / min(IMAGENET_STD)


PROCESSORS = [
    Preprocessing(image_size=(30, 28), resize=32, resample="bilinear", rounding="transformers"),
    Preprocessing(image_size=(30, 28), resize=32, resample="lanczos", rounding="timm"),
    Preprocessing(image_size=(30, 28), resize=20, resample="hamming", rounding="transformers", rescale=1 / 100),
    Preprocessing(image_size=(30, 28), resize=(31, 45), resample="box", rounding="transformers"),
    Preprocessing(image_size=(30, 28), resize="crop", rounding="transformers"),
    Preprocessing(image_size=(50, 28), resize="crop", rounding="transformers"),
]


@pytest.mark.parametrize("settings", PROCESSORS, ids=str)
def test_prepare_agrees_with_what_file_readers_do_for_processors(settings: Preprocessing) -> None:
    pixels = np.ascontiguousarray(_middling(2, 36)[:, :, :33])
    result = transforms.prepare(torch.from_numpy(pixels), settings)
    for image, prepared in zip(pixels, result, strict=True):
        expected = transforms.normalize(_unit(resize_and_crop(_pillow(image), settings))[None], settings)[0]
        assert max_difference(prepared, expected) <= 2 * 255 * STEP * settings.rescale / min(settings.std) + 1e-6


def test_a_picture_that_may_not_be_resized() -> None:
    settings = Preprocessing(image_size=(8, 8), resize="keep")
    assert transforms.prepare(torch.from_numpy(random_pixels(2, 8)), settings).shape == (2, 3, 8, 8)
    with pytest.raises(MaqeeError, match="9x9 pixels do not fit: the model takes 8x8"):
        transforms.prepare(torch.from_numpy(random_pixels(2, 9)), settings)
    data = io.BytesIO()
    _pillow(random_pixels(1, 9)[0]).save(data, "PNG")
    with pytest.raises(MaqeeError, match=r"^nine: 9x9 pixels do not fit") as caught:
        FileImages([MemoryEntry("nine", data.getvalue())]).load([0], settings)
    assert_one_sentence(str(caught.value))


def test_prepare_only_normalises_what_has_the_size() -> None:
    settings = Preprocessing(image_size=(8, 8), resize=12)
    pixels = torch.from_numpy(random_pixels(2, 8))
    assert torch.equal(transforms.prepare(pixels, settings), (pixels.float() / 255 - 0.5) / 0.5)


# --- random transforms -----------------------------------------------------------------------------------------------


@given(padding=st.integers(0, 3), data=st.data())
def test_shift_crop_by_loop(padding: int, data: st.DataObject) -> None:
    shift = st.integers(0, 2 * padding)
    shifts = data.draw(st.lists(st.tuples(shift, shift), min_size=3, max_size=3))
    images = _images(3, 5)
    result = transforms.shift_crop(images, torch.tensor(shifts), padding)
    for image, (down, right), shifted in zip(images, shifts, result, strict=True):
        for row in range(5):
            for column in range(5):
                y, x = row + down - padding, column + right - padding
                expected = image[:, y, x] if 0 <= y < 5 and 0 <= x < 5 else torch.zeros(3)
                assert torch.equal(shifted[:, row, column], expected)


def test_flip_mirrors_the_marked_images_only() -> None:
    images = _images(3, 4)
    result = transforms.flip(images, torch.tensor([True, False, True]))
    for index, marked in enumerate([True, False, True]):
        for column in range(4):
            assert torch.equal(result[index, :, :, column], images[index, :, :, 3 - column if marked else column])


def test_jitter_changes_nothing_at_one() -> None:
    images = _images()
    assert max_difference(transforms.jitter(images, torch.ones(4, 3)), images) < 1e-6


def test_jitter_brightness_contrast_and_saturation_each_do_their_own() -> None:
    image = 0.25 + 0.5 * _images(1)
    darker = transforms.jitter(image, torch.tensor([[0.5, 1, 1]]))
    assert max_difference(darker, 0.5 * image) < 1e-6
    flat = transforms.jitter(image, torch.tensor([[1, 0.0, 1]]))
    assert max_difference(flat, image.mean().expand_as(image)) < 1e-6
    grey = transforms.jitter(image, torch.tensor([[1, 1, 0.0]]))
    assert max_difference(grey, image.mean(dim=1, keepdim=True).expand_as(image)) < 1e-6


@given(factors=st.lists(st.floats(0, 3), min_size=12, max_size=12))
def test_jitter_stays_in_range(factors: list[float]) -> None:
    result = transforms.jitter(_images(), torch.tensor(factors).reshape(4, 3))
    assert 0 <= float(result.min()) <= float(result.max()) <= 1


@given(boxes=st.lists(st.tuples(shares, shares, shares, shares), min_size=2, max_size=2))
def test_erase_by_loop(boxes: list[tuple[float, float, float, float]]) -> None:
    images = _images(2, 6)
    result = transforms.erase(images, torch.tensor(boxes))
    for image, (top, left, height, width), erased in zip(images, torch.tensor(boxes), result, strict=True):
        for row in range(6):
            for column in range(6):
                y, x = torch.tensor((row + 0.5) / 6), torch.tensor((column + 0.5) / 6)
                inside = bool(top <= y < top + height) and bool(left <= x < left + width)
                expected = torch.full((3,), 0.5) if inside else image[:, row, column]
                assert torch.equal(erased[:, row, column], expected)


def test_erase_box_of_known_size_and_none() -> None:
    images = torch.zeros(2, 3, 8, 8)
    result = transforms.erase(images, torch.tensor([[0.25, 0.5, 0.5, 0.25], [0.0, 0.0, 0.0, 1.0]]))
    assert torch.equal(result[0, :, 2:6, 4:6], torch.full((3, 4, 2), 0.5))
    assert float(result[0].sum()) == 3 * 4 * 2 * 0.5
    assert torch.equal(result[1], images[1])


def test_scale_crop_of_the_full_box_changes_nothing() -> None:
    images = _images()
    assert max_difference(transforms.scale_crop(images, torch.tensor([[0.0, 0, 1, 1]]).expand(4, 4)), images) < 1e-5


@given(numbers=st.tuples(shares, shares, shares, shares))
def test_scale_crop_of_a_ramp_is_the_ramp_inside_the_box(numbers: tuple[float, float, float, float]) -> None:
    size, margin = 10, 0.1  # bilinear sampling is exact on a ramp, away from the border
    extent = [margin + (1 - 2 * margin) * max(0.1, share) * 0.5 for share in numbers[2:]]
    start = [margin + (1 - 2 * margin - side) * share for side, share in zip(extent, numbers[:2], strict=True)]
    centres = (torch.arange(size) + 0.5) / size
    ramp = torch.stack([centres[:, None].expand(size, size), centres[None].expand(size, size)])[None]
    box = torch.tensor([[*start, *extent]])
    result = transforms.scale_crop(ramp, box)[0]
    assert max_difference(result[0], (start[0] + extent[0] * centres)[:, None].expand(size, size)) < 1e-5
    assert max_difference(result[1], (start[1] + extent[1] * centres)[None].expand(size, size)) < 1e-5
