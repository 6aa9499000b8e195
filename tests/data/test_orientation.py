"""Pictures are turned as their EXIF data says, unless the model's preprocessing or the data set is against it."""

from __future__ import annotations

import io
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageOps, PngImagePlugin

from maqee.data.images import FileImages, MemoryEntry
from maqee.data.orientation import turn_upright
from maqee.models.preprocessing import Preprocessing
from tests.data.makers import random_pixels

WANTED = Preprocessing(image_size=(12, 12))


def _photo(orientation: int, kind: str = "PNG") -> bytes:
    """A picture of 12x12 noise pixels with a note on how to turn it."""
    exif, data = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(random_pixels(1, 12)[0].transpose(1, 2, 0)).save(data, kind, exif=exif)
    return data.getvalue()


def _load(data: bytes, preprocessing: Preprocessing = WANTED, turn: bool = True) -> torch.Tensor:
    return FileImages([MemoryEntry("photo", data)], turn).load([0], preprocessing)[0]


def test_orientation_6_by_hand() -> None:
    """The camera lay on its side: the first column, from below, is the first row."""
    stored, turned = _load(_photo(1)), _load(_photo(6))
    assert torch.equal(turned[:, 0], stored[:, :, 0].flip(1))
    assert torch.equal(turned, stored.rot90(-1, (1, 2)))
    assert torch.equal(_load(_photo(6), replace(WANTED, exif=False)), stored)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
@pytest.mark.parametrize("orientation", range(10))
def test_every_orientation_as_pillow_turns_it(orientation: int, kind: str) -> None:
    data = _photo(orientation, kind)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(np.asarray(turn_upright(image)), expected)


def test_pictures_with_masks_or_boxes_are_left_as_they_are_stored() -> None:
    assert torch.equal(_load(_photo(6), turn=False), _load(_photo(1)))
    images = FileImages([MemoryEntry("photo", _photo(6))] * 2, turn=False).select([1])
    assert torch.equal(images.load([0], WANTED)[0], _load(_photo(1)))


WORD = struct.pack("<HIHHHI4sI", 42, 8, 1, ExifTags.Base.Orientation, 2, 4, b"abc", 0)  # a text where a number belongs
NOTES = [b"", b"garbage", b"II*\0\xff\xff\xff\xff", b"II" + WORD]


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("note", NOTES, ids=["empty", "garbage", "cut off", "text"])
def test_a_damaged_note_does_not_spoil_the_picture(note: bytes) -> None:
    plain, noted = io.BytesIO(), io.BytesIO()
    picture = Image.fromarray(random_pixels(1, 12)[0].transpose(1, 2, 0))
    picture.save(plain, "JPEG")
    picture.save(noted, "JPEG", exif=b"Exif\0\0" + note)
    assert torch.equal(_load(noted.getvalue()), _load(plain.getvalue()))


def test_a_damaged_note_of_a_png() -> None:
    """ImageMagick writes EXIF data as text, in hexadecimal digits from the fourth line on."""
    data, note = io.BytesIO(), PngImagePlugin.PngInfo()
    note.add_text("Raw profile type exif", "\nexif\n8\nno digits")
    Image.fromarray(random_pixels(1, 12)[0].transpose(1, 2, 0)).save(data, "PNG", pnginfo=note)
    assert torch.equal(_load(data.getvalue()), _load(_photo(1)))
