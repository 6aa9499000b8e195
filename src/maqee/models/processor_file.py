"""What preprocessor_config.json of transformers says, with what its classes do where the file is silent."""

from __future__ import annotations

import logging
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from maqee.errors import MaqeeError
from maqee.models.preprocessing import HALF, IMAGENET_MEAN, IMAGENET_STD, Resample

logger = logging.getLogger(__name__)

Size = int | list[int] | dict[str, int | None]
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_FILTERS: tuple[Resample, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # Pillow's numbers

# What each class does where its file is silent; sizes are left to the model.
_CLIP = {
    "resample": 3,
    "image_mean": _CLIP_MEAN,
    "image_std": _CLIP_STD,
    "do_center_crop": True,
    "do_convert_rgb": True,
    "default_to_square": False,
}
_CLASSES: dict[str, dict[str, Any]] = {
    "ViT": {},
    "DeiT": {"resample": 3, "do_center_crop": True},
    "Bit": _CLIP,
    "CLIP": _CLIP,
    "Yolos": {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD, "default_to_square": False},
}
_LIMITS = ({"shortest_edge", "longest_edge"}, {"max_height", "max_width"})
_CLASS_OF_MODEL = {"deit": "DeiT", "dinov2": "Bit", "dinov2_with_registers": "Bit", "clip": "CLIP", "yolos": "Yolos"}


class Processor(BaseModel):
    """The keys that change pixels; the values are what ViTImageProcessor does where its file is silent."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    do_resize: bool = True
    size: Size | None = None
    default_to_square: bool = True
    resample: int | str = 2
    do_center_crop: bool = False
    crop_size: Size | None = None
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True
    image_mean: float | list[float] | tuple[float, ...] = HALF
    image_std: float | list[float] | tuple[float, ...] = HALF
    do_convert_rgb: bool = False
    do_pad: bool = False
    pad_size: Size | None = None

    @property
    def pads(self) -> bool:
        """Whether images are enlarged to a fixed size; padding to the largest of a batch changes nothing here."""
        return self.do_pad and self.pad_size is not None

    def numbers(self, key: Literal["image_mean", "image_std"], channels: int, source: str) -> tuple[float, ...]:
        """One number for every channel."""
        found = getattr(self, key)
        values = (found,) * channels if isinstance(found, int | float) else tuple(found)
        if len(values) != channels:
            raise MaqeeError(
                f"{source}: key {key!r} has {len(values)} numbers, and the model {channels} channels: correct it, "
                "or give preprocessing."
            )
        return tuple(float(value) for value in values)

    def resample_name(self, source: str) -> Resample:
        """The filter, which files give as a number of Pillow's."""
        for number, name in enumerate(_FILTERS):
            if self.resample in (number, name):
                return name
        raise MaqeeError(f"{source}: key 'resample' is {self.resample!r}, expected a number from 0 to 5.")

    def crop(self, source: str) -> tuple[int, int] | None:
        """Height and width that are cut out; None where the file does not say."""
        if self.crop_size is None:
            return None
        found = _read_size(self.crop_size, square=True)
        if not isinstance(found, tuple):
            raise MaqeeError(f"{source}: key 'crop_size' is {self.crop_size!r}, expected a height and a width.")
        return found

    def scaled(self, source: str) -> int | tuple[int, int] | Literal["varies"] | None:
        """The short side, or height and width, that pictures are scaled to; None where the file does not say."""
        if self.size is None or not self.do_resize:
            return None
        found = _read_size(self.size, self.default_to_square)
        if found is None:
            raise MaqeeError(
                f"{source}: key 'size' is {self.size!r}, expected a height and a width or a shortest_edge."
            )
        return found


def read_processor(values: dict[str, Any], model_type: Any, source: str) -> Processor:
    """Check the values of a processor's file.

    Args:
        values: of the file; null is as good as nothing.
        model_type: of the model beside it, which decides where the file names no class.
        source: named in errors.
    """
    name = values.get("image_processor_type") or values.get("feature_extractor_type")
    if name is None:
        kind = _CLASS_OF_MODEL.get(str(model_type), "ViT")
    else:
        kind = re.sub(r"(ImageProcessor(Fast|Pil)?|FeatureExtractor)$", "", str(name))
        if kind not in _CLASSES:
            logger.warning("%s: %s is not known here and is read like ViTImageProcessor.", source, name)
            kind = "ViT"
    given = {key: value for key, value in values.items() if value is not None}
    try:
        return Processor.model_validate(_CLASSES[kind] | given)
    except ValidationError as error:
        first = error.errors()[0]
        raise MaqeeError(f"{source}: key {first['loc'][0]!r}: {first['msg'].lower()}.") from error


def _read_size(size: Size, square: bool) -> int | tuple[int, int] | Literal["varies"] | None:
    """A short side, height and width, or limits of both that leave a picture its shape; None if it is neither."""
    if isinstance(size, list):
        size = dict(zip(("height", "width"), size, strict=False))
    if isinstance(size, int):
        return (size, size) if square else size
    sides = {name: value for name, value in size.items() if value is not None}
    if set(sides) == {"shortest_edge"}:
        return sides["shortest_edge"]
    if set(sides) == {"height", "width"}:
        return sides["height"], sides["width"]
    return "varies" if set(sides) in _LIMITS else None
