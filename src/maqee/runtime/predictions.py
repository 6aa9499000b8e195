"""What a model says about a picture, in words and numbers that need no model to be read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Label:
    """A class that a picture may show.

    Attributes:
        name: of the class; its number as text where the model has no names.
        number: of the class in the model's outputs.
        probability: by the softmax over all classes.
    """

    name: str
    number: int
    probability: float


@dataclass(frozen=True)
class FoundBox:
    """An object in a picture; the sides are in pixels of the picture.

    Attributes:
        name: of the object's class; its number as text where the model has no names.
        number: of the class in the model's outputs.
        probability: of the class, among all classes and "no object".
    """

    name: str
    number: int
    probability: float
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Area:
    """A class in a mask.

    Attributes:
        name: of the class; its number as text where the model has no names.
        number: of the class in the mask.
        share: of the pixels that the model saw.
    """

    name: str
    number: int
    share: float


@dataclass(frozen=True)
class Prediction:
    """What a model says about one picture.

    Attributes:
        image: the picture's name: its path, or "image 3" for the fourth where it has none.
        exit: the block after which the model stopped, counted from 1.
        full_depth: whether it went through all blocks.
        confidence: how sure it was there, 0 to 1; what the threshold of an exit is compared with.
        kind: which of the following the model predicts.
        labels: the most probable classes, the first one first.
        boxes: objects of more than half probability, the surest first.
        areas: classes in the mask, the largest first.
        mask: uint8 (height, width) of the picture: the class of every pixel, 255 where the model did not look.
    """

    image: str
    exit: int
    full_depth: bool
    confidence: float
    kind: Literal["labels", "boxes", "areas"]
    labels: tuple[Label, ...] = ()
    boxes: tuple[FoundBox, ...] = ()
    areas: tuple[Area, ...] = ()
    mask: NDArray[np.uint8] | None = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values; a mask is too large for them and is told by the areas of its classes."""
        found: dict[str, tuple[Any, ...]] = {"labels": self.labels, "boxes": self.boxes, "areas": self.areas}
        return {
            "image": self.image,
            "exit": self.exit,
            "full_depth": self.full_depth,
            "confidence": self.confidence,
            self.kind: [asdict(entry) for entry in found[self.kind]],
        }
