"""How a model wants its images: turned, scaled, cut out, normalised."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from maqee.errors import MaqeeError, suggest
from maqee.models.config import from_plain_values

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)

Resample = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
_ALWAYS_WRITTEN = ("image_size", "resize", "mean", "std")  # the first version of the file had these and no others


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Scale a picture, cut out the centre, and turn every value v of 0..255 into (v * rescale - mean) / std.

    Attributes:
        image_size: height and width that the model takes.
        resize: what is done before the centre is cut out. A number: the short side is scaled to it. Two numbers: the
            whole picture is scaled to this height and width. None: the whole picture is scaled to `image_size`, so that
            nothing is cut off. "crop": it is not scaled, only cut. "keep": neither, so it must have `image_size`.
        mean: of each channel.
        std: of each channel.
        resample: the filter that scales, one of Pillow's.
        rounding: whose rule holds where a side or a margin is no whole number of pixels. "timm" (as torchvision) rounds
            the long side down and margins to the nearest, "transformers" rounds both down; what a picture is too small
            for is black. "maqee" rounds both to the nearest and scales no side below `image_size`.
        rescale: 1 / 255 makes 0..255 to 0..1, and 1 leaves it.
        exif: turn pictures as their EXIF data says; processors of transformers do not.
        transparent: what is seen where a picture is transparent: "drop" the colour that is stored, or "white".
    """

    image_size: tuple[int, int]
    resize: int | tuple[int, int] | Literal["crop", "keep"] | None = None
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF
    resample: Resample = "bicubic"
    rounding: Literal["maqee", "timm", "transformers"] = "maqee"
    rescale: float = 1 / 255
    exif: bool = True
    transparent: Literal["drop", "white"] = "drop"

    def __post_init__(self) -> None:
        sides = (self.resize,) if isinstance(self.resize, int) else self.resize
        for side in (*self.image_size, *(sides if isinstance(sides, tuple) else ())):
            if side < 1:
                raise MaqeeError(f"image_size and resize must be at least 1 pixel, not {side}.")
        if self.resample not in get_args(Resample):
            raise suggest(str(self.resample), list(get_args(Resample)), "resample")
        if not self.mean or len(self.mean) != len(self.std):
            raise MaqeeError(f"mean {self.mean} and std {self.std} must have one number each for every channel.")
        if not all(map(math.isfinite, self.mean)) or not all(0 < value < math.inf for value in self.std):
            raise MaqeeError(f"mean {self.mean} must be finite and std {self.std} greater than 0.")
        if not 0 < self.rescale < math.inf:
            raise MaqeeError(f"rescale must be a positive number, not {self.rescale!r}.")

    @property
    def crops(self) -> bool:
        """Whether the edges of a picture may be cut off."""
        return self.resize not in (None, "keep")

    def scaled_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width that a picture is scaled to before the centre is cut out."""
        if self.resize == "keep" and (height, width) != self.image_size:
            rows, columns = self.image_size
            raise MaqeeError(
                f"{width}x{height} pixels do not fit: the model takes {columns}x{rows}, and pictures are neither "
                "scaled nor cut (resize is 'keep'): scale them, or set another resize."
            )
        if self.resize is None or isinstance(self.resize, tuple):
            return self.resize or self.image_size
        if isinstance(self.resize, str):
            return height, width
        short = min(height, width)
        if self.rounding == "maqee":
            scale = self.resize / short
            return max(round(height * scale), self.image_size[0]), max(round(width * scale), self.image_size[1])
        return int(self.resize * height / short), int(self.resize * width / short)

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """Top and left of the centre in a picture of this size; negative where the picture is too small."""
        top, left = (self._margin(side - kept) for side, kept in zip((height, width), self.image_size, strict=True))
        return top, left

    def _margin(self, spare: int) -> int:
        if self.rounding == "transformers":
            return spare // 2
        return round(spare / 2) if spare > 0 else int(spare / 2)

    def for_size(self, image_size: tuple[int, int]) -> Preprocessing:
        """The same for another size of the model's images: they show as much of a picture as before.

        A processor's own rounding is kept for its own shape of images only: at another it would add black edges.
        """
        (height, width), (old_height, old_width) = image_size, self.image_size
        resize = self.resize
        if isinstance(resize, int):
            resize = max(1, round(resize * height / old_height))
        elif isinstance(resize, tuple):
            resize = max(1, round(resize[0] * height / old_height)), max(1, round(resize[1] * width / old_width))
        rounding = self.rounding if height * old_width == width * old_height else "maqee"
        return replace(self, image_size=image_size, resize=resize, rounding=rounding)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what is as usual is left out, so that older versions can read the rest."""
        usual = {field.name: field.default for field in dataclasses.fields(self) if field.name not in _ALWAYS_WRITTEN}
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name not in usual or value != usual[name]}

    @classmethod
    def from_json(cls, values: dict[str, Any], source: str) -> Preprocessing:
        """The reverse of `to_json`; `source` names the file in errors."""
        known = {field.name for field in dataclasses.fields(cls)}
        if wrong := sorted((set(values) - known) | (set(_ALWAYS_WRITTEN) - set(values))):
            raise MaqeeError(f"{source}: key {wrong[0]!r} is missing from or unknown to the preprocessing settings.")
        return from_plain_values(cls, values, source)


def override(
    preprocessing: Preprocessing,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    resample: str | None = None,
    resize: int | None = None,
    exif: bool | None = None,
) -> Preprocessing:
    """Replace what the user says; None leaves it. One number for mean or std holds for all channels."""
    if resize is not None and resize < max(preprocessing.image_size):
        size = "x".join(map(str, preprocessing.image_size))
        raise MaqeeError(f"Resize {resize} is smaller than the model's image size {size}: give at least that.")
    channels = len(preprocessing.mean)
    changes: dict[str, Any] = {"resample": resample, "resize": resize, "exif": exif}
    for name, numbers in (("mean", mean), ("std", std)):
        if numbers is None:
            continue
        if len(numbers) not in (1, channels):
            raise MaqeeError(f"{name} has {len(numbers)} numbers, and the model {channels} channels: give as many.")
        changes[name] = tuple(numbers) * (channels if len(numbers) == 1 else 1)
    return replace(preprocessing, **{name: value for name, value in changes.items() if value is not None})
