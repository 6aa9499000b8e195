"""Pictures the right way up: cameras store them as the sensor lay and note in the EXIF data how to turn them."""

from __future__ import annotations

import struct

from PIL import ExifTags, Image

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def turn_upright(image: Image.Image) -> Image.Image:
    """As `PIL.ImageOps.exif_transpose`, which also rewrites the EXIF data and fails where that is damaged."""
    image.load()  # a PNG may have its EXIF data behind the pixels
    turn = _TURNS.get(_orientation(image))
    return image if turn is None else image.transpose(turn)


def _orientation(image: Image.Image) -> int:
    """1 to 8; 1 is upright, and taken where nothing can be read: the pixels are good without it."""
    try:
        found = image.getexif().get(ExifTags.Base.Orientation, 1)
    except (OSError, ValueError, SyntaxError, struct.error):
        return 1
    return found if isinstance(found, int) else 1
