"""How images must be prepared is read from where each library writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maqee.errors import MaqeeError
from maqee.models import Preprocessing, load_backbone
from tests.models.foreign import make
from tests.models.test_timm_layout import random_backbone, write_timm_folder
from tests.models.timm_names import timm_state

HALF = (0.5, 0.5, 0.5)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GREY = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
CROP = {"do_center_crop": True, "crop_size": {"height": 32, "width": 32}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make("vit").save_pretrained(tmp_path)
    return tmp_path


def _read(folder: Path, values: dict[str, Any], **options: Any) -> Preprocessing:
    (folder / "preprocessor_config.json").write_text(json.dumps(values))
    return load_backbone(folder, **options).preprocessing


TRANSFORMERS: list[tuple[dict[str, Any], int | None]] = [
    ({"size": {"height": 32, "width": 32}}, None),
    ({"size": 32}, None),
    ({"size": {"shortest_edge": 36}, **CROP}, 36),
    ({"size": {"height": 37, "width": 37}, **CROP}, 37),
    ({"size": 38, **CROP}, 38),  # how files from before transformers 4.25 say it
    ({"size": {"shortest_edge": 36}, "do_center_crop": False}, None),
]


@pytest.mark.parametrize(("values", "resize"), TRANSFORMERS, ids=str)
def test_preprocessor_config_of_transformers(folder: Path, values: dict[str, Any], resize: int | None) -> None:
    expected = Preprocessing(image_size=(32, 32), resize=resize, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    assert _read(folder, {**GREY, **values}) == expected


def test_resize_keeps_its_ratio_at_another_image_size(folder: Path) -> None:
    found = _read(folder, {**GREY, "size": {"shortest_edge": 36}, **CROP}, image_size=64)
    assert found.image_size == (64, 64)
    assert found.resize == 72


@pytest.mark.parametrize(
    "values", [{"image_mean": 3}, {"image_std": ["a", "b", "c"]}, {"size": "big", **CROP}], ids=str
)
def test_impossible_preprocessor_config(folder: Path, values: dict[str, Any]) -> None:
    with pytest.raises(MaqeeError, match=r"preprocessor_config\.json: key"):
        _read(folder, values)


def test_broken_preprocessor_config(folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text("{")
    with pytest.raises(MaqeeError, match=r"preprocessor_config\.json is not valid JSON"):
        load_backbone(folder)


@pytest.mark.parametrize(("crop", "resize"), [(0.875, 36), (0.9, 35), (1.0, 32), (None, None)])
def test_pretrained_cfg_of_timm(tmp_path: Path, crop: float | None, resize: int | None) -> None:
    write_timm_folder(tmp_path, timm_state(random_backbone("test-vit")), num_heads=2)
    values = json.loads((tmp_path / "config.json").read_text())
    values["pretrained_cfg"]["crop_pct"] = crop
    (tmp_path / "config.json").write_text(json.dumps(values))
    expected = Preprocessing(image_size=(32, 32), resize=resize, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.1))
    assert load_backbone(tmp_path).preprocessing == expected


CUSTOM = [
    ("vit", HALF, HALF),
    ("deit", IMAGENET_MEAN, IMAGENET_STD),
    ("dinov2", IMAGENET_MEAN, IMAGENET_STD),
    ("swin", IMAGENET_MEAN, IMAGENET_STD),
]


@pytest.mark.parametrize(("kind", "mean", "std"), CUSTOM)
def test_without_a_file_the_family_decides(kind: str, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    assert load_backbone(make(kind)).preprocessing == Preprocessing(image_size=(32, 32), mean=mean, std=std)


@pytest.mark.parametrize(
    ("preset", "mean"),
    [("vit-tiny", HALF), ("deit-tiny", IMAGENET_MEAN), ("deit-tiny-distilled", IMAGENET_MEAN), ("vit-digits", (0.5,))],
)
def test_presets(preset: str, mean: tuple[float, ...]) -> None:
    found = load_backbone(preset).preprocessing
    assert found.mean == mean
    assert len(found.std) == len(mean)
