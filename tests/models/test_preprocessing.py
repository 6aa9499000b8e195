"""The settings themselves: what they mean in pixels, what may be said, and how they are stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.errors import MaqeeError
from maqee.models import Preprocessing
from maqee.models.preprocessing import HALF, IMAGENET_MEAN, IMAGENET_STD, override

OLD = {"image_size": [32, 32], "resize": 40, "mean": [0.5], "std": [0.5]}


def test_files_of_the_first_version_mean_what_they_meant() -> None:
    expected = Preprocessing(
        image_size=(32, 32),
        resize=40,
        mean=(0.5,),
        std=(0.5,),
        resample="bicubic",
        rounding="maqee",
        rescale=1 / 255,
        transparent="drop",
    )
    assert Preprocessing.from_json(OLD, "file") == expected


def test_what_is_as_usual_is_not_written() -> None:
    written = Preprocessing(image_size=(32, 32), resize=40, mean=(0.5,), std=(0.5,)).to_json()
    assert json.loads(json.dumps(written)) == OLD
    assert set(Preprocessing(image_size=(8, 8), exif=False).to_json()) == {*OLD, "exif"}


sides = st.integers(1, 300)
numbers = st.tuples(*[st.floats(0.01, 2)] * 3)


@given(
    wanted=st.builds(
        Preprocessing,
        image_size=st.tuples(sides, sides),
        resize=st.one_of(st.none(), sides, st.tuples(sides, sides), st.sampled_from(["crop", "keep"])),
        mean=numbers,
        std=numbers,
        resample=st.sampled_from(["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]),
        rounding=st.sampled_from(["maqee", "timm", "transformers"]),
        rescale=st.floats(1e-3, 1),
        exif=st.booleans(),
        transparent=st.sampled_from(["drop", "white"]),
    )
)
def test_written_and_read_again(wanted: Preprocessing) -> None:
    assert Preprocessing.from_json(json.loads(json.dumps(wanted.to_json())), "file") == wanted


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"resample": "cubic"}, "did you mean bicubic"),
    ({"std": (0.5, 0.5, 0.0)}, "greater than 0"),
    ({"mean": (0.5, float("nan"), 0.5)}, "finite"),
    ({"mean": (0.5,)}, "one number each"),
    ({"resize": 0}, "at least 1 pixel"),
    ({"resize": (4, -1)}, "at least 1 pixel"),
    ({"rescale": 0.0}, "positive number"),
]


@pytest.mark.parametrize(("values", "words"), WRONG, ids=str)
def test_impossible_values(values: dict[str, Any], words: str) -> None:
    with pytest.raises(MaqeeError, match=words):
        Preprocessing(image_size=(8, 8), **values)


def test_override_replaces_what_is_said() -> None:
    stored = Preprocessing(image_size=(32, 32), resize=36, mean=IMAGENET_MEAN, std=IMAGENET_STD, rounding="timm")
    assert override(stored) == stored
    changed = override(stored, mean=[0.5], std=[0.1, 0.2, 0.3], resample="box", resize=40, exif=False)
    expected = replace(stored, mean=HALF, std=(0.1, 0.2, 0.3), resample="box", resize=40, exif=False)
    assert changed == expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mean": [0.5, 0.5]}, "mean has 2 numbers, and the model 3 channels"),
        ({"std": [0.0]}, "greater than 0"),
        ({"resample": "sharp"}, "Unknown resample 'sharp'"),
        ({"resize": 31}, "Resize 31 is smaller than the model's image size 32x32"),
    ],
    ids=str,
)
def test_impossible_override(values: dict[str, Any], words: str) -> None:
    with pytest.raises(MaqeeError, match=words):
        override(Preprocessing(image_size=(32, 32)), **values)


def test_sizes_and_corners_by_hand() -> None:
    """A picture of 71x50 pixels: 35 / 50 * 71 is 49.7."""
    wanted = Preprocessing(image_size=(32, 32), resize=35)
    found = {}
    roundings: list[Literal["maqee", "timm", "transformers"]] = ["maqee", "timm", "transformers"]
    for rounding in roundings:
        settings = replace(wanted, rounding=rounding)
        size = settings.scaled_size(50, 71)
        found[rounding] = size, settings.corner(*size)
    assert found == {
        "maqee": ((35, 50), (2, 9)),  # 1.5 to the even number 2
        "timm": ((35, 49), (2, 8)),  # 8.5 to 8
        "transformers": ((35, 49), (1, 8)),
    }


def test_a_picture_that_is_too_small_by_hand() -> None:
    wanted = Preprocessing(image_size=(32, 32), resize=20)
    assert wanted.scaled_size(40, 60) == (32, 32)
    theirs = replace(wanted, rounding="transformers")
    assert theirs.scaled_size(40, 60) == (20, 30)
    assert theirs.corner(20, 30) == (-6, -1)
    assert theirs.corner(29, 33) == (-2, 0)
    assert replace(wanted, rounding="timm").corner(29, 33) == (-1, 0)
