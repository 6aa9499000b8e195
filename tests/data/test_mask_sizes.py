"""A mask goes through the same scaling and cut as its image, to the nearest pixel, in memory and in files."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from maqee.data.box_targets import BOXES
from maqee.data.images import FileImages, MemoryEntry
from maqee.data.mask_targets import MASKS, MaskFiles
from maqee.data.pairs import MaskCode, Pair
from maqee.data.transforms import fit, to_unit
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing
from maqee.tasks.pixels import IGNORE
from tests.data.makers import Pixels

SETTINGS = {
    "whole": Preprocessing(image_size=(24, 20)),
    "short side": Preprocessing(image_size=(24, 20), resize=27),
    "short side, rounded down": Preprocessing(image_size=(24, 20), resize=27, rounding="transformers"),
    "too small": Preprocessing(image_size=(24, 20), resize=15, rounding="transformers"),
    "height and width": Preprocessing(image_size=(24, 20), resize=(29, 33), rounding="timm"),
    "only cut": Preprocessing(image_size=(24, 20), resize="crop", rounding="transformers"),
}
PICTURES = [(30, 47), (47, 30), (13, 17), (64, 64)]


def _classes(height: int, width: int) -> Pixels:
    return np.random.default_rng(height).integers(1, 200, (height, width), dtype=np.uint8)


def _encode(pixels: Pixels) -> bytes:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def _assert_follows(mask: Tensor, image: Tensor, padded: bool) -> None:
    """The image shows the number of each pixel's class, and black where there is no picture."""
    assert torch.equal(torch.where(mask == IGNORE, 0, mask), image)
    assert bool((mask == IGNORE).any()) == padded


@pytest.mark.parametrize("size", PICTURES)
@pytest.mark.parametrize("name", SETTINGS)
def test_mask_files_follow_their_images(name: str, size: tuple[int, int]) -> None:
    settings, classes = replace(SETTINGS[name], resample="nearest"), _classes(*size)
    pair = Pair(MemoryEntry("image", _encode(np.stack([classes] * 3, axis=-1))), MemoryEntry("mask", _encode(classes)))
    kind = MaskFiles([pair], MaskCode(first=0, classes=200, ignored=()))
    mask = kind.fit(kind.load(torch.tensor([0]), SETTINGS[name]), SETTINGS[name])[0]
    image = FileImages([pair.image]).load([0], settings)[0, 0]
    small = name == "too small" or (name == "only cut" and size == (13, 17))
    _assert_follows(mask, image, padded=small)


@pytest.mark.parametrize("size", [(31, 47), (13, 17), (61, 59)])  # odd, so that no two pixels are equally near
@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "whole"])
def test_masks_in_memory_follow_their_images(name: str, size: tuple[int, int]) -> None:
    settings, classes = replace(SETTINGS[name], resample="nearest"), torch.from_numpy(_classes(*size))
    mask = MASKS.fit(classes[None], SETTINGS[name])[0]
    image = (255 * fit(to_unit(classes[None, None]), settings)).round().to(torch.uint8)[0, 0]
    small = name == "too small" or (name == "only cut" and size == (13, 17))
    _assert_follows(mask, image, padded=small)


def test_masks_in_memory_keep_their_size_where_nothing_is_cut() -> None:
    classes = torch.from_numpy(_classes(30, 47))[None]
    assert MASKS.fit(classes, SETTINGS["whole"]) is classes


@pytest.mark.parametrize("name", SETTINGS)
def test_boxes_follow_no_cut(name: str) -> None:
    targets = torch.tensor([[[0.0, 0.5, 0.5, 0.2, 0.2]]])
    if name == "whole":
        assert BOXES.fit(targets, SETTINGS[name]) is targets
    else:
        with pytest.raises(MaqeeError, match="cuts the centre out"):
            BOXES.fit(targets, SETTINGS[name])
