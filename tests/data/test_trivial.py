"""Each kind of change against Pillow, and all of them on one batch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from maqee.data.trivial import KINDS, TURNED, change
from tests.data.makers import random_pixels
from tests.helpers import max_difference

STEP = 1 / 255
SIZE = 24
Change = Callable[[Image.Image, float], Image.Image]


def _affine(
    image: Image.Image, a: float, b: float, d: float, e: float, right: float = 0.0, down: float = 0.0
) -> Image.Image:
    """Pillow's transform about the middle of the picture."""
    middle = image.width / 2
    c, f = middle - a * middle - b * middle + right, middle - d * middle - e * middle + down
    grey = (128, 128, 128)
    return image.transform(
        image.size, Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.BILINEAR, fillcolor=grey
    )


def _rotate(image: Image.Image, strength: float) -> Image.Image:
    angle = strength * math.pi / 6
    return _affine(image, math.cos(angle), -math.sin(angle), math.sin(angle), math.cos(angle))


PILLOW: dict[str, Change] = {
    "none": lambda image, strength: image,
    "autocontrast": lambda image, strength: ImageOps.autocontrast(image),
    "equalize": lambda image, strength: ImageOps.equalize(image),
    "solarize": lambda image, strength: ImageOps.solarize(image, math.ceil(256 * (1 - abs(strength)))),
    "posterize": lambda image, strength: ImageOps.posterize(image, 8 - round(4 * abs(strength))),
    "colour": lambda image, strength: ImageEnhance.Color(image).enhance(1 + 0.9 * strength),
    "contrast": lambda image, strength: ImageEnhance.Contrast(image).enhance(1 + 0.9 * strength),
    "brightness": lambda image, strength: ImageEnhance.Brightness(image).enhance(1 + 0.9 * strength),
    "sharpness": lambda image, strength: ImageEnhance.Sharpness(image).enhance(1 + 0.9 * strength),
    "rotate": _rotate,
    "shear-x": lambda image, strength: _affine(image, 1, 0.3 * strength, 0, 1),
    "shear-y": lambda image, strength: _affine(image, 1, 0, 0.3 * strength, 1),
    "move-x": lambda image, strength: _affine(image, 1, 0, 0, 1, right=0.32 * strength * image.width),
    "move-y": lambda image, strength: _affine(image, 1, 0, 0, 1, down=0.32 * strength * image.width),
}


def _smooth(count: int, seed: int = 0) -> Tensor:
    """Bytes without hard edges, where a pixel beside the right one is nearly the right colour."""
    coarse = torch.rand(count, 3, 5, 5, generator=torch.Generator().manual_seed(seed))
    fine = torch.nn.functional.interpolate(coarse, (SIZE, SIZE), mode="bicubic").clamp(0, 1)
    return (fine * 255).round().to(torch.uint8)


def _pillow(pixels: Tensor, kind: str, strength: float) -> Tensor:
    image = PILLOW[kind](Image.fromarray(pixels.permute(1, 2, 0).numpy()), strength)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [-1.0, -0.7, 0.0, 0.3, 0.9])
def test_every_kind_is_pillows(kind: str, strength: float) -> None:
    """To a step in 255, or three where Pillow rounds a mean or a position before the result."""
    pixels = _smooth(6)
    number, strengths = torch.full((6,), KINDS.index(kind)), torch.full((6,), strength)
    found = change(pixels / 255, number, strengths)
    expected = torch.stack([_pillow(one, kind, strength) for one in pixels])
    apart = (found - expected).abs()
    if kind in TURNED:  # not at the edge of the grey, where Pillow does not blend
        white = torch.full_like(pixels[:1], 255)
        kept = (change(white / 255, number[:1], strengths[:1]) > 0.999) & (_pillow(white[0], kind, strength) > 0.999)
        inside = -torch.nn.functional.max_pool2d(-kept.float(), 3, 1, 1)
        assert float(inside.mean()) > 0.5
        apart = apart * inside
    assert float(apart.max()) <= 3.01 * STEP
    assert float(apart.mean()) <= STEP


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_mixed_batch_is_every_picture_on_its_own(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.from_numpy(random_pixels(32, 9, seed % 100)).float() / 255
    kinds, strengths = (
        torch.randint(len(KINDS), (32,), generator=generator),
        2 * torch.rand(32, generator=generator) - 1,
    )
    together = change(images, kinds, strengths)
    alone = torch.cat(
        [change(*(part[index : index + 1] for part in (images, kinds, strengths))) for index in range(32)]
    )
    assert max_difference(together, alone) < 1e-5
    assert 0 <= float(together.min()) <= float(together.max()) <= 1 + 1e-6
    untouched = kinds == KINDS.index("none")
    assert torch.equal(together[untouched], images[untouched])


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_flat_pictures_of_any_channels(channels: int) -> None:
    """Nothing to stretch or spread: no division by nothing."""
    images = torch.full((len(KINDS), channels, 8, 8), 0.25)
    changed = change(images, torch.arange(len(KINDS)), torch.full((len(KINDS),), 0.5))
    assert torch.isfinite(changed).all()
    for kind in ("none", "autocontrast", "equalize", "colour", "contrast", "sharpness"):
        assert max_difference(changed[KINDS.index(kind)], images[0]) < 1e-6
