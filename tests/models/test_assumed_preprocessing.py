"""Where no preprocessing is stored, the family's custom is assumed with a warning, unless the caller says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from maqee.errors import MaqeeError
from maqee.models import Preprocessing, load_backbone
from maqee.models.preprocessing import HALF, IMAGENET_MEAN, IMAGENET_STD
from tests.models.foreign import make
from tests.models.test_timm_layout import random_backbone
from tests.models.timm_names import timm_state

CUSTOM = [
    ("vit", HALF, HALF, "bilinear"),
    ("deit", IMAGENET_MEAN, IMAGENET_STD, "bicubic"),
    ("dinov2", IMAGENET_MEAN, IMAGENET_STD, "bicubic"),
    ("swin", IMAGENET_MEAN, IMAGENET_STD, "bicubic"),
]


@pytest.mark.parametrize(("kind", "mean", "std", "resample"), CUSTOM)
def test_without_a_file_the_family_decides_and_a_warning_names_the_guess(
    kind: str, mean: tuple[float, ...], std: tuple[float, ...], resample: Any, caplog: pytest.LogCaptureFixture
) -> None:
    found = load_backbone(make(kind)).preprocessing
    assert found == Preprocessing(image_size=(32, 32), mean=mean, std=std, resample=resample)
    [record] = caplog.records
    shown = ", ".join(map(str, mean))
    assert f"no preprocessing is stored with it: assuming mean {shown}, std " in record.getMessage()
    assert f"whole pictures scaled to 32x32 ({resample})" in record.getMessage()


@pytest.mark.parametrize(
    ("name", "mean"),
    [
        ("vit_small_patch16_224", HALF),
        ("deit_small_patch16_224-cd65a155", IMAGENET_MEAN),
        ("DINO_vits8", IMAGENET_MEAN),
    ],
)
def test_a_bare_file_is_known_by_its_name(
    tmp_path: Path, name: str, mean: tuple[float, ...], caplog: pytest.LogCaptureFixture
) -> None:
    save_file(timm_state(random_backbone("vit-tiny")), tmp_path / f"{name}.safetensors")
    assert load_backbone(tmp_path / f"{name}.safetensors").preprocessing.mean == mean
    assert f"{name}.safetensors: no preprocessing is stored with it: assuming mean {mean[0]}" in caplog.text


def test_what_is_said_needs_no_guess(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make("vit").save_pretrained(tmp_path)
    said = Preprocessing(image_size=(32, 32), resize=40, resample="lanczos")
    assert load_backbone(make("vit"), preprocessing=said).preprocessing == said
    assert load_backbone(tmp_path, preprocessing=said).preprocessing == said
    assert not caplog.records


@pytest.mark.parametrize("source", ["preset", "module"])
def test_the_model_gets_the_size_that_is_said(source: str) -> None:
    said = Preprocessing(image_size=(16, 24), resize=30)
    model = load_backbone("test-vit" if source == "preset" else make("vit"), preprocessing=said)
    assert (model.config.image_size, model.preprocessing) == ((16, 24), said)
    larger = load_backbone("test-vit" if source == "preset" else make("vit"), image_size=64, preprocessing=said)
    assert (larger.config.image_size, larger.preprocessing.image_size) == ((64, 64), (64, 64))


def test_what_is_said_has_the_channels_of_the_model() -> None:
    with pytest.raises(MaqeeError, match="mean and std have 1 numbers, and the model 3 channels"):
        load_backbone("test-vit", preprocessing=Preprocessing(image_size=(32, 32), mean=(0.5,), std=(0.5,)))


@pytest.mark.parametrize(
    ("preset", "mean"),
    [("vit-tiny", HALF), ("deit-tiny", IMAGENET_MEAN), ("deit-tiny-distilled", IMAGENET_MEAN), ("vit-digits", (0.5,))],
)
def test_presets(preset: str, mean: tuple[float, ...], caplog: pytest.LogCaptureFixture) -> None:
    found = load_backbone(preset).preprocessing
    assert found.mean == mean
    assert len(found.std) == len(mean)
    assert not caplog.records
