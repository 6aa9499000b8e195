"""Masks as picture files that other programs read: class numbers with a palette, so that they can be looked at too."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from maqee.errors import MaqeeError
from maqee.io import write_atomically
from maqee.report.palette import COLOURS, UNCOUNTED, as_shares
from maqee.tasks.pixels import IGNORE


def save_mask(mask: NDArray[np.uint8], path: Path) -> None:
    """Write a mask (height, width) as a PNG whose pixels are class numbers; 255, where nothing is known, is black."""
    image = Image.fromarray(mask)
    image.putpalette(_palette())  # the mode becomes P, the numbers stay
    write_atomically(path, lambda temporary: image.save(temporary, format="PNG"))


def mask_files(names: Sequence[str], folder: Path) -> list[Path]:
    """A file for the mask of each picture: FOLDER/NAME.png, and NAME-2.png for the second picture of that name.

    No mask may take the place of one of the pictures.
    """
    taken: set[str] = set()
    files: list[Path] = []
    for name in names:
        stem = Path(name).stem
        numbered = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
        free = next(one for one in numbered if one not in taken)
        taken.add(free)
        files.append(folder / f"{free}.png")
    pictures = {Path(name).resolve() for name in names}
    if lost := [file for file in files if file.resolve() in pictures]:
        raise MaqeeError(f"The mask {lost[0]} would take the place of a picture: give another folder for the masks.")
    return files


def _palette() -> list[int]:
    """Red, green and blue of 256 numbers; colours come again after 14 classes."""
    colours = [COLOURS[number % len(COLOURS)] for number in range(IGNORE)] + [UNCOUNTED]
    return [round(255 * share) for colour in colours for share in as_shares(colour)]
