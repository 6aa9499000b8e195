"""How images must be prepared is read from where each library writes it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from maqee.errors import MaqeeError
from maqee.models import Preprocessing, load_backbone
from maqee.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from maqee.models.presets import presets
from maqee.models.read_preprocessing import read_preprocessing
from maqee.models.sources import Checkpoint
from tests.helpers import max_difference
from tests.models.foreign import TOLERANCE, images, make
from tests.models.test_timm_layout import random_backbone, write_timm_folder
from tests.models.timm_names import timm_state

GREY = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
CROP = {"do_center_crop": True, "crop_size": {"height": 32, "width": 32}}
BIT = {"image_processor_type": "BitImageProcessor"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make("vit").save_pretrained(tmp_path)
    return tmp_path


def _read(folder: Path, values: dict[str, Any], **options: Any) -> Preprocessing:
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return load_backbone(folder, **options).preprocessing


# --- transformers ----------------------------------------------------------------------------------------------------

TRANSFORMERS: list[tuple[dict[str, Any], int | tuple[int, int] | str | None]] = [
    ({"size": {"height": 32, "width": 32}}, None),
    ({"size": 32}, None),  # how files from before transformers 4.25 say it
    ({"size": [32, 32]}, None),
    ({"size": {"shortest_edge": 36}, **CROP}, 36),
    ({"size": {"height": 37, "width": 39}, **CROP}, (37, 39)),
    ({"size": {"height": 32, "width": 32}, **CROP}, None),
    ({"size": 38, **CROP}, (38, 38)),
    ({"size": 38, **CROP, "crop_size": 32, "feature_extractor_type": "DeiTFeatureExtractor"}, (38, 38)),
    ({"size": 38, **CROP, "default_to_square": False}, 38),
    ({"size": {"height": 99, "width": 99}, "do_resize": False, **CROP}, "crop"),
    ({"size": {"height": 99, "width": 99}, "do_resize": False}, "keep"),
]


@pytest.mark.parametrize(("values", "resize"), TRANSFORMERS, ids=str)
def test_sizes_of_transformers(folder: Path, values: dict[str, Any], resize: Any) -> None:
    expected = Preprocessing(
        image_size=(32, 32),
        resize=resize,
        mean=(0.1, 0.2, 0.3),
        std=(0.4, 0.5, 0.6),
        resample="bicubic" if "feature_extractor_type" in values else "bilinear",
        rounding="transformers",
    )
    assert _read(folder, {**GREY, **values}) == expected


def test_a_bare_number_is_the_short_side_for_some_processors(folder: Path) -> None:
    for name in ("BitImageProcessor", "BitImageProcessorFast", "CLIPImageProcessor", "CLIPFeatureExtractor"):
        found = _read(folder, {"size": 38, "crop_size": 32, "image_processor_type": name})
        assert (found.resize, found.resample, found.transparent) == (38, "bicubic", "white")


SWITCHES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"resample": 0}, {"resample": "nearest"}),
    ({"resample": 1}, {"resample": "lanczos"}),
    ({"resample": 4}, {"resample": "box"}),
    ({"resample": 5}, {"resample": "hamming"}),
    ({"resample": "bicubic"}, {"resample": "bicubic"}),
    ({"resample": None, "do_normalize": None}, {}),
    ({"do_normalize": False}, {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}),
    ({"do_rescale": False}, {"rescale": 1.0}),
    ({"rescale_factor": 1 / 127.5}, {"rescale": 1 / 127.5}),
    ({"image_mean": 0.25, "image_std": 2}, {"mean": (0.25, 0.25, 0.25), "std": (2.0, 2.0, 2.0)}),
    ({"do_convert_rgb": True}, {"transparent": "white"}),
]


@pytest.mark.parametrize(("values", "changes"), SWITCHES, ids=str)
def test_switches_of_transformers(folder: Path, values: dict[str, Any], changes: dict[str, Any]) -> None:
    usual = Preprocessing(image_size=(32, 32), resample="bilinear", rounding="transformers")
    assert _read(folder, {"size": 32, **values}) == replace(usual, **changes)


def test_the_newer_file_comes_first(folder: Path) -> None:
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": {"size": 32, "resample": 1}}))
    assert _read(folder, {"size": 32, "resample": 3}).resample == "lanczos"
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": "CLIPProcessor"}))
    assert _read(folder, {"size": 32, "resample": 3}).resample == "bicubic"


def test_resize_keeps_its_ratio_at_another_image_size(folder: Path) -> None:
    found = _read(folder, {**GREY, "size": {"shortest_edge": 36}, **CROP}, image_size=64)
    assert (found.image_size, found.resize, found.rounding) == ((64, 64), 72, "transformers")
    wide = _read(folder, {**GREY, "size": {"shortest_edge": 36}, **CROP}, image_size=(32, 64))
    assert (wide.image_size, wide.resize, wide.rounding) == ((32, 64), 36, "maqee")
    pair = _read(folder, {"size": {"height": 36, "width": 40}, **CROP}, image_size=64)
    assert pair.resize == (72, 80)


def test_a_model_for_larger_images_gets_the_size_that_its_processor_gives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As of published DINOv2: 518 pixels in config.json, 224 in preprocessor_config.json."""
    theirs = make("dinov2")
    theirs.save_pretrained(tmp_path)
    values = {**BIT, "size": {"shortest_edge": 18}, "do_center_crop": True, "crop_size": {"height": 16, "width": 16}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(values))
    ours = load_backbone(tmp_path).eval()
    assert ours.config.image_size == ours.preprocessing.image_size == (16, 16)
    assert ours.preprocessing.resize == 18
    assert "made for images of 32x32, but its preprocessing gives 16x16" in caplog.text
    pixels = images(16)
    with torch.no_grad():
        assert max_difference(ours(pixels), theirs(pixels).logits) <= TOLERANCE
    asked = load_backbone(tmp_path, image_size=32)
    assert (asked.config.image_size, asked.preprocessing.resize) == ((32, 32), 36)


def test_a_swin_keeps_its_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make("swin").save_pretrained(tmp_path)
    found = _read(tmp_path, {"size": 18, "do_center_crop": True, "crop_size": 16})
    assert (found.image_size, found.resize) == ((32, 32), (36, 36))
    assert "for images of 16x16, and the model takes 32x32" in caplog.text


@pytest.mark.parametrize(
    "values",
    [
        {"size": {"shortest_edge": 36}, "do_center_crop": False},
        {"size": {"shortest_edge": 36, "longest_edge": 60}},
        {"size": {"max_height": 36, "max_width": 60}, **CROP},
        {"size": 32, "do_pad": True, "pad_size": {"height": 40, "width": 40}},
    ],
    ids=str,
)
def test_sizes_that_differ_from_picture_to_picture(
    folder: Path, values: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    found = _read(folder, values)
    assert (found.image_size, found.resize) == ((32, 32), None)
    assert "leaves pictures their shape: here whole pictures are scaled to 32x32" in caplog.text


def test_a_detector_sees_whole_pictures(caplog: pytest.LogCaptureFixture) -> None:
    """Published YOLOS leaves pictures their shape; here all have one size."""
    published = {
        "image_processor_type": "YolosImageProcessor",
        "size": {"shortest_edge": 512, "longest_edge": 1333},
        "image_mean": list(IMAGENET_MEAN),
        "image_std": list(IMAGENET_STD),
        "do_pad": True,
    }
    whole = {**published, "size": {"height": 32, "width": 48}}
    for values, warned in ((whole, False), (published, True)):
        checkpoint = Checkpoint("model", {}, preprocessor=values, preprocessor_source="file")
        found = read_preprocessing(checkpoint, presets["test-yolos"])
        expected = Preprocessing(image_size=(32, 48), mean=IMAGENET_MEAN, std=IMAGENET_STD, rounding="transformers")
        assert found == replace(expected, resample="bilinear")
        assert ("detectors see all of them: here whole pictures are scaled to 48x32" in caplog.text) == warned


def test_an_unknown_processor_is_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert _read(folder, {"size": 32, "image_processor_type": "OddImageProcessor"}).resample == "bilinear"
    assert "OddImageProcessor is not known here and is read like ViTImageProcessor" in caplog.text


@pytest.mark.parametrize(
    "values",
    [
        {"image_mean": "grey"},
        {"image_mean": [0.5, 0.5]},
        {"image_std": ["a", "b", "c"]},
        {"image_std": 0, "size": 32},
        {"size": "big", **CROP},
        {"size": {"height": 9}},
        {"size": {"height": -9, "width": 9}},
        {"crop_size": {"shortest_edge": 9}, "do_center_crop": True},
        {"resample": 6},
        {"resample": "cubic"},
        {"do_resize": "no"},
        {"rescale_factor": -1},
    ],
    ids=str,
)
def test_impossible_preprocessor_config(folder: Path, values: dict[str, Any]) -> None:
    with pytest.raises(MaqeeError, match=r"preprocessor_config\.json: "):
        _read(folder, values)
    said = Preprocessing(image_size=(32, 32), resize=40)
    assert load_backbone(folder, preprocessing=said).preprocessing == said


def test_broken_preprocessor_config(folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text("{")
    with pytest.raises(MaqeeError, match=r"preprocessor_config\.json is not valid JSON"):
        load_backbone(folder)


# --- timm ------------------------------------------------------------------------------------------------------------

TIMM: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"crop_pct": 0.875}, {"resize": 36}),  # 36.57, rounded down
    ({"crop_pct": 0.9}, {"resize": 35}),
    ({"crop_pct": 1.0}, {"resize": 32}),
    ({"crop_pct": None}, {"resize": 36}),  # timm's own custom
    ({"crop_pct": 0.9, "crop_mode": "squash"}, {"resize": (35, 35)}),
    ({"crop_pct": 1, "crop_mode": "squash"}, {"resize": None}),
    ({"crop_pct": 1.0, "interpolation": "bilinear"}, {"resize": 32, "resample": "bilinear"}),
    ({"crop_pct": 1.0, "interpolation": None}, {"resize": 32}),
    ({"crop_pct": 1.0, "mean": None, "std": None}, {"resize": 32, "mean": IMAGENET_MEAN, "std": IMAGENET_STD}),
]


def _write_timm(folder: Path, changes: dict[str, Any]) -> None:
    write_timm_folder(folder, timm_state(random_backbone("test-vit")), num_heads=2)
    values = json.loads((folder / "config.json").read_text())
    values["pretrained_cfg"] |= changes
    (folder / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(("values", "changes"), TIMM, ids=str)
def test_pretrained_cfg_of_timm(tmp_path: Path, values: dict[str, Any], changes: dict[str, Any]) -> None:
    _write_timm(tmp_path, values)
    usual = Preprocessing(image_size=(32, 32), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.1), rounding="timm")
    assert load_backbone(tmp_path).preprocessing == replace(usual, **changes)


def test_a_crop_of_timm_that_is_not_followed_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _write_timm(tmp_path, {"crop_pct": 0.9, "crop_mode": "border"})
    assert load_backbone(tmp_path).preprocessing.resize is None
    assert "crop_mode 'border' to 35x35 is not supported: here whole pictures are scaled to 32x32" in caplog.text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"crop_pct": "most"}, "crop_pct"),
        ({"crop_pct": -0.9}, "crop_pct"),
        ({"interpolation": "random"}, "resample"),
        ({"mean": [0.5]}, "mean"),
        ({"mean": [0.5], "std": [0.5]}, "1 numbers, and the model 3 channels"),
    ],
    ids=str,
)
def test_impossible_pretrained_cfg(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    _write_timm(tmp_path, values)
    with pytest.raises(MaqeeError, match=rf"config\.json: pretrained_cfg.*{words}"):
        load_backbone(tmp_path)
