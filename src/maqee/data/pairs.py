"""Images with their masks: which belong together, and what the numbers in a mask file mean."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maqee.data.images import Entry, as_rgb
from maqee.errors import MaqeeError
from maqee.tasks.pixels import IGNORE

Pixels = NDArray[np.uint8]
_UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)
_UNKNOWN = -1
_ONE_CHANNEL = ("1", "L", "P", "I", "I;16", "I;16B")


class Pair(NamedTuple):
    """An encoded image and its encoded mask."""

    image: Entry
    mask: Entry


@dataclass(frozen=True)
class MaskCode:
    """How the numbers in mask files become classes 0, 1, ...

    Attributes:
        first: the number of the first class.
        classes: how many follow each other from there.
        ignored: numbers of pixels that do not count; 255 is always one.
    """

    first: int
    classes: int
    ignored: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 < self.classes < IGNORE or not all(0 <= number <= IGNORE for number in self.ignored):
            raise MaqeeError(f"Masks have 1 to {IGNORE - 1} classes and ignore numbers from 0 to {IGNORE}.")

    def decode(self, numbers: NDArray[np.integer], place: str) -> Pixels:
        """Classes, and `IGNORE` for pixels that do not count; any other number is an error."""
        highest = 255  # a mask has eight bits; what is larger in a deeper file is unknown like any other
        table = np.full(highest + 2, _UNKNOWN, dtype=np.int16)
        table[self.first : self.first + self.classes] = np.arange(self.classes)
        table[[*self.ignored, IGNORE]] = IGNORE
        numbers = numbers.astype(np.int64)  # numpy 2.5 does not put 256 beside 8-bit numbers
        classes = table[np.where((numbers < 0) | (numbers > highest), highest + 1, numbers)]
        if (bad := classes == _UNKNOWN).any():
            last = self.first + self.classes - 1
            listed = ", ".join(map(str, sorted({*self.ignored, IGNORE})))
            raise MaqeeError(
                f"{place}: {int(bad.sum())} pixels are of no known class, the first has the number "
                f"{int(numbers[bad][0])}: expected {self.first}..{last}, or {listed} for pixels to be ignored."
            )
        return classes.astype(np.uint8)


def pair_up(images: Mapping[str, Entry], masks: Mapping[str, Entry], where: str) -> list[Pair]:
    """Images and masks of the same name (without ending), sorted; one without the other is an error."""
    for have, lack, what in ((images, masks, "mask"), (masks, images, "image")):
        if alone := sorted(set(have) - set(lack)):
            raise MaqeeError(
                f"{where}: {len(alone)} files have no {what}, the first is {have[alone[0]].place}: add or remove them."
            )
    if not images:
        raise MaqeeError(f"{where} holds no images.")
    return [Pair(images[name], masks[name]) for name in sorted(images)]


def read_mask(pair: Pair, code: MaskCode) -> Pixels:
    """The mask (height, width) of an image, checked against the image's size."""
    try:
        with Image.open(io.BytesIO(pair.mask.read())) as file:
            mode, numbers = file.mode, np.array(file)
    except _UNREADABLE as error:
        raise MaqeeError(f"{pair.mask.place} cannot be decoded: replace it.") from error
    if mode not in _ONE_CHANNEL:
        raise MaqeeError(f"{pair.mask.place} is a picture of mode {mode}, expected one class number a pixel.")
    try:
        with Image.open(io.BytesIO(pair.image.read())) as file:
            width, height = file.size
    except _UNREADABLE as error:
        raise MaqeeError(f"{pair.image.place} cannot be decoded: replace it.") from error
    if numbers.shape != (height, width):
        raise MaqeeError(
            f"{pair.mask.place} has {numbers.shape[1]}x{numbers.shape[0]} pixels, its image {width}x{height}: "
            "give each image a mask of its own size."
        )
    return code.decode(numbers, pair.mask.place)


def read_all(pairs: Sequence[Pair], code: MaskCode, name: str) -> tuple[Pixels, Pixels]:
    """Decode everything into memory: images (n, height, width, 3) and masks (n, height, width), all of one size."""
    with ThreadPoolExecutor() as pool:
        masks = list(pool.map(lambda pair: read_mask(pair, code), pairs))
        images = list(pool.map(_read_image, pairs))
    for pair, mask in zip(pairs, masks, strict=True):
        if mask.shape != masks[0].shape:
            size, first = ("x".join(map(str, reversed(shape))) for shape in (mask.shape, masks[0].shape))
            raise MaqeeError(f"{name}: {pair.image.place} has {size} pixels, others {first}: resize all to one size.")
    return np.stack(images), np.stack(masks)


def _read_image(pair: Pair) -> Pixels:
    try:
        with Image.open(io.BytesIO(pair.image.read())) as file:
            return np.array(as_rgb(file))
    except _UNREADABLE as error:
        raise MaqeeError(f"{pair.image.place} cannot be decoded: replace it.") from error
