"""Pixels as the model sees them: equal to those of transformers' own processors, and to timm's rules worked by hand.

torchvision is not installed, so these are the processors that work with Pillow. Those that work with torchvision (the
"fast" ones) scale bytes by other code and can differ by one step of 255 from their own Pillow twins.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from maqee.data.images import FileImages, MemoryEntry
from maqee.data.transforms import prepare
from maqee.models import Preprocessing, ViTConfig, load_backbone
from maqee.models.read_preprocessing import read_preprocessing
from maqee.models.sources import Checkpoint
from tests.helpers import max_difference
from tests.models.foreign import make

TOLERANCE = 1e-6
SHAPE = ViTConfig(image_size=(24, 20), patch_size=4)
VIT: Any = ViTImageProcessorPil
BIT: Any = BitImageProcessorPil
PROCESSORS: dict[str, Any] = {"vit": VIT, "deit": DeiTImageProcessorPil, "bit": BIT}
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
PICTURES = [(30, 47), (47, 30), (24, 20), (20, 24), (13, 17), (9, 50), (64, 64), (1, 3)]  # height, width
WHOLE: dict[str, Any] = {"size": {"height": 24, "width": 20}, "do_center_crop": False}
SIZES: dict[str, dict[str, Any]] = {
    "whole": WHOLE,
    "whole, cut": {"size": {"height": 29, "width": 33}, "do_center_crop": True, "crop_size": (24, 20)},
    "short side, cut": {"size": {"shortest_edge": 27}, "do_center_crop": True, "crop_size": (24, 20)},
    "short side below the cut": {"size": {"shortest_edge": 15}, "do_center_crop": True, "crop_size": (24, 20)},
    "number, cut": {"size": 27, "do_center_crop": True, "crop_size": {"height": 24, "width": 20}},
    "only cut": {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 24, "width": 20}},
    "number": {"size": 24, "do_center_crop": True, "crop_size": 24},
}


def _picture(height: int, width: int, mode: str = "RGB", **options: Any) -> Image.Image:
    """Noise of all values, blacks and whites among them, out of a PNG file."""
    rng = np.random.default_rng(1000 * height + width)
    pixels = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
    pixels[rng.random((height, width)) < 0.2, :3] = 0
    pixels[rng.random((height, width)) < 0.2, :3] = 255
    image = Image.fromarray(pixels if "A" in mode else pixels[..., :3]).convert(mode)
    return Image.open(io.BytesIO(_encode(image, **options)))


def _encode(picture: Image.Image, **options: Any) -> bytes:
    data = io.BytesIO()
    picture.save(data, "PNG", **options)
    return data.getvalue()


def _ours(picture: Image.Image, preprocessing: Preprocessing) -> Tensor:
    """(channels, height, width), from a file to what the model is given."""
    pixels = FileImages([MemoryEntry("picture", _encode(picture))]).load([0], preprocessing)
    return prepare(pixels, preprocessing)[0]


def _theirs(picture: Image.Image, processor: Any) -> Tensor:
    return torch.from_numpy(np.asarray(processor(picture, return_tensors="np")["pixel_values"][0], dtype=np.float32))


def _read(processor: Any) -> Preprocessing:
    """From what `save_pretrained` writes."""
    values = json.loads(processor.to_json_string())
    return read_preprocessing(Checkpoint("model", {}, preprocessor=values, preprocessor_source="file"), SHAPE)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("kind", PROCESSORS)
def test_every_filter_and_every_rule_of_sizes(kind: str, resample: str, sizes: str) -> None:
    processor = PROCESSORS[kind](resample=FILTERS[resample], **SIZES[sizes])
    wanted = _read(processor)
    assert wanted.resample == resample
    for height, width in PICTURES:
        picture = _picture(height, width)
        assert max_difference(_ours(picture, wanted), _theirs(picture, processor)) <= TOLERANCE


SWITCHES: list[dict[str, Any]] = [
    {},
    {"do_resize": False},
    {"do_normalize": False},
    {"do_rescale": False},
    {"do_rescale": False, "do_normalize": False},
    {"rescale_factor": 1 / 127.5, "image_mean": [1.0, 0.9, 1.1]},
    {"image_mean": 0.25, "image_std": 0.125},
    {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    {"image_mean": [127.5, 100.0, 30.0], "image_std": [64.0, 32.0, 16.0], "do_rescale": False},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("kind", PROCESSORS)
def test_every_switch(kind: str, switches: dict[str, Any]) -> None:
    processor = PROCESSORS[kind](**WHOLE, **switches)
    wanted = _read(processor)
    picture = _picture(24, 20) if "do_resize" in switches else _picture(30, 47)
    assert max_difference(_ours(picture, wanted), _theirs(picture, processor)) <= TOLERANCE


@pytest.mark.parametrize("mode", ["RGB", "L", "LA", "RGBA", "P", "1"])
@pytest.mark.parametrize("kind", PROCESSORS)
def test_every_kind_of_picture(kind: str, mode: str) -> None:
    processor = PROCESSORS[kind](**WHOLE, do_convert_rgb=True)
    picture = _picture(30, 47, mode)
    assert max_difference(_ours(picture, _read(processor)), _theirs(picture, processor)) <= TOLERANCE


def test_a_palette_with_a_transparent_colour() -> None:
    picture = _picture(30, 47, "P", transparency=15)
    assert picture.has_transparency_data
    processor = BIT(**WHOLE)
    assert max_difference(_ours(picture, _read(processor)), _theirs(picture, processor)) <= TOLERANCE


def test_transparency_is_dropped_where_the_processor_does_not_convert() -> None:
    """transformers refuses such a picture; here the stored colours are taken, as by PIL's convert("RGB")."""
    wanted, picture = _read(VIT(**WHOLE)), _picture(30, 47, "RGBA")
    assert torch.equal(_ours(picture, wanted), _ours(picture.convert("RGB"), wanted))
    white = _read(VIT(**WHOLE, do_convert_rgb=True))
    assert max_difference(_ours(picture, white), _ours(picture, wanted)) > 0.5


side = st.integers(1, 70)


@settings(max_examples=150)
@given(picture=st.tuples(side, side), crop=st.tuples(side, side), short=side, squash=st.booleans(), data=st.data())
def test_sizes_at_random(
    picture: tuple[int, int], crop: tuple[int, int], short: int, squash: bool, data: st.DataObject
) -> None:
    size = {"height": short, "width": data.draw(side)} if squash else {"shortest_edge": short}
    processor = BIT(size=size, crop_size=crop, resample=data.draw(st.integers(0, 5)))
    wanted, pixels = _read(processor), _picture(*picture)
    assert wanted.image_size == crop
    assert max_difference(_ours(pixels, wanted), _theirs(pixels, processor)) <= TOLERANCE


# --- folders ---------------------------------------------------------------------------------------------------------

OLD_STYLE: dict[str, Any] = {
    "do_normalize": True,
    "do_resize": True,
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": [0.5] * 3,
}
FOLDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit of 2021": ("vit", {**OLD_STYLE, "feature_extractor_type": "ViTFeatureExtractor", "resample": 2, "size": 32}),
    "deit of 2021": (
        "deit",
        {
            **OLD_STYLE,
            "feature_extractor_type": "DeiTFeatureExtractor",
            "resample": 3,
            "size": 36,
            "do_center_crop": True,
            "crop_size": 32,
        },
    ),
    "fast": (
        "vit",
        {**OLD_STYLE, "image_processor_type": "ViTImageProcessorFast", "size": {"height": 32, "width": 32}},
    ),
    "nameless vit": ("vit", {"size": 32}),
    "nameless deit": ("deit", {"size": 36, "crop_size": 32}),
    "nameless dinov2": ("dinov2", {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}),
    "nameless swin": ("swin", {"size": {"height": 32, "width": 32}, "resample": 3}),
}


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("nested", [False, True], ids=["preprocessor_config", "processor_config"])
def test_what_auto_image_processor_makes_of_a_folder(tmp_path: Path, name: str, nested: bool) -> None:
    kind, values = FOLDERS[name]
    make(kind).save_pretrained(tmp_path)
    file, content = (
        ("processor_config.json", {"image_processor": values}) if nested else ("preprocessor_config.json", values)
    )
    (tmp_path / file).write_text(json.dumps(content))
    auto: Any = transformers.AutoImageProcessor
    processor = auto.from_pretrained(tmp_path, backend="pil")
    wanted = load_backbone(tmp_path).preprocessing
    for height, width in PICTURES:
        picture = _picture(height, width)
        assert max_difference(_ours(picture, wanted), _theirs(picture, processor)) <= TOLERANCE


@pytest.mark.parametrize("kind", PROCESSORS)
def test_a_processor_that_was_saved_beside_its_model(tmp_path: Path, kind: str) -> None:
    make("vit", image_size=224, patch_size=32).save_pretrained(tmp_path)
    processor = PROCESSORS[kind]()
    processor.save_pretrained(tmp_path)
    picture = _picture(300, 271)
    ours = _ours(picture, load_backbone(tmp_path).preprocessing)
    assert max_difference(ours, _theirs(picture, processor)) <= TOLERANCE


# --- timm ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "size", "box"),
    [
        # 24 / 0.9 is 26.7, so 26 (not 27); 26 / 30 * 47 is 40.7, so 40; margins of 1 and 8
        ({"crop_pct": 0.9, "interpolation": "bicubic"}, (40, 26), (8, 1, 32, 25)),
        ({"crop_pct": 0.95, "interpolation": "bilinear"}, (39, 25), (8, 0, 32, 24)),  # margins of 0.5 and 7.5
        ({"crop_pct": 1.0, "interpolation": "lanczos"}, (37, 24), (6, 0, 30, 24)),  # 37.6; a margin of 6.5
        ({"crop_pct": 0.9, "crop_mode": "squash", "interpolation": "nearest"}, (26, 26), (1, 1, 25, 25)),
        ({"crop_pct": 1.0, "crop_mode": "squash", "interpolation": "box"}, (24, 24), (0, 0, 24, 24)),
    ],
    ids=str,
)
def test_rules_of_timm(values: dict[str, Any], size: tuple[int, int], box: tuple[int, int, int, int]) -> None:
    """A picture of 47x30 pixels for a model of 24x24; sizes are width and height, as Pillow has them."""
    statistics = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    checkpoint = Checkpoint("model", {}, {"pretrained_cfg": {**values, **statistics}}, "file")
    wanted = read_preprocessing(checkpoint, ViTConfig(image_size=(24, 24), patch_size=4))
    picture = _picture(30, 47)
    expected = picture.resize(size, Image.Resampling[values["interpolation"].upper()]).crop(box)
    pixels = np.asarray(expected).astype(np.float64) / 255
    normal = (pixels - statistics["mean"]) / statistics["std"]
    assert max_difference(_ours(picture, wanted), torch.from_numpy(normal).permute(2, 0, 1).float()) <= TOLERANCE
