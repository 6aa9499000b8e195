"""How a model wants its images: size, resize rule, normalisation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from maqee.errors import MaqeeError
from maqee.models.config import from_plain_values

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Resize the short side to `resize` (bicubic), cut out the centre of `image_size`, normalise.

    Attributes:
        resize: short side before the crop; None scales the whole image to `image_size` without a crop.
    """

    image_size: tuple[int, int]
    resize: int | None = None
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF

    def scaled_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width that a picture is scaled to before the centre is cut out."""
        if self.resize is None:
            return self.image_size
        scale = self.resize / min(height, width)
        return max(round(height * scale), self.image_size[0]), max(round(width * scale), self.image_size[1])

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """Top and left of the centre in a picture of this size."""
        return round((height - self.image_size[0]) / 2), round((width - self.image_size[1]) / 2)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any], source: str) -> Preprocessing:
        """The reverse of `to_json`; `source` names the file in errors."""
        known = {field.name for field in dataclasses.fields(cls)}
        if known != set(values):
            wrong = sorted(known ^ set(values))[0]
            raise MaqeeError(f"{source}: key {wrong!r} is missing from or unknown to the preprocessing settings.")
        return from_plain_values(cls, values, source)
