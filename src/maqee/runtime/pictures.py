"""Everything that a user may hand over, as named pictures that are opened when their turn comes."""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from maqee.data.images import IMAGE_ENDINGS, image_files
from maqee.errors import MaqeeError


@dataclass(frozen=True)
class Picture:
    """A picture that is opened when asked for.

    Attributes:
        name: the file's, or what to call it.
        open: decodes it; raises what Pillow raises where it is damaged.
    """

    name: str
    open: Callable[[], Image.Image]


@dataclass(frozen=True)
class NormalizedPicture:
    """A picture as the model itself takes it.

    Attributes:
        name: what to call it.
        values: normalised, (channels, height, width).
    """

    name: str
    values: Tensor


NamedPicture = Picture | NormalizedPicture
PictureLike = str | Path | Image.Image | NDArray[np.uint8] | Picture | NormalizedPicture
Pictures = PictureLike | Iterable[PictureLike]
ImageLike = PictureLike | Tensor
Images = ImageLike | Iterable[ImageLike]

_KINDS = "a file, a folder, a pattern like pics/*.jpg, a PIL image, a uint8 array or a tensor"
_loading = threading.Lock()  # Pillow decodes a picture when it is first used, and not safely in two threads


def list_pictures(images: Images) -> list[NamedPicture]:
    """All pictures that were handed over, in order; files are looked for now and opened later.

    Args:
        images: a file, a folder (its images, also those in folders below, sorted), a pattern ("pics/*.jpg"), a PIL
            image, a uint8 array (h, w), (h, w, 3) or (n, h, w, 3), a uint8 tensor (3, h, w) or (n, 3, h, w), a float
            tensor (c, h, w) or (n, c, h, w), which is taken as normalised already, or several of these.
    """
    several = isinstance(images, Iterable) and not isinstance(images, str | Path | np.ndarray | Tensor | Image.Image)
    found = list(each_picture(images if several else [images]))  # type: ignore[arg-type, list-item]
    if not found:
        raise MaqeeError(f"There are no images to predict: give {_KINDS}.")
    return found


def each_picture(images: Iterable[ImageLike]) -> Iterator[NamedPicture]:
    """The same for a stream that may never end: one after the other as they are asked for."""
    count = 0
    for item in images:
        for picture in pictures_of(item, count):
            yield picture
            count += 1


def pictures_of(item: Any, count: int) -> list[NamedPicture]:
    """The pictures in one of the things handed over; those without a name are called by their place, `count` on."""
    if isinstance(item, Picture | NormalizedPicture):
        return [item]
    if isinstance(item, str | Path):
        return [_file_picture(path) for path in _find_files(str(item))]
    if isinstance(item, Image.Image):
        return [_loaded_picture(getattr(item, "filename", "") or f"image {count}", item)]
    if isinstance(item, np.ndarray):
        return [_array_picture(f"image {count + n}", pixels) for n, pixels in enumerate(_split_array(item))]
    if isinstance(item, Tensor):
        return _tensor_pictures(item, count)
    raise MaqeeError(f"An object of type {type(item).__name__} is no image: give {_KINDS}.")


# --- files -----------------------------------------------------------------------------------------------------------


def _find_files(place: str) -> list[Path]:
    if os.path.isfile(place):
        return [Path(place)]
    if place and os.path.isdir(place):
        found = image_files(Path(place))
        if not found:
            endings = ", ".join(sorted(IMAGE_ENDINGS))
            raise MaqeeError(f"{place} holds no images: give a folder with files that end in {endings}.")
        return found
    if not glob.has_magic(place):
        raise MaqeeError(f"{place!r} does not exist: give {_KINDS}.")
    matching = sorted(path for path in glob.glob(place, recursive=True) if os.path.isfile(path))
    if not matching:
        raise MaqeeError(f"No file matches {place!r}: give another pattern, a file or a folder.")
    return [Path(path) for path in matching]


def _file_picture(path: Path) -> Picture:
    def read() -> Image.Image:
        with Image.open(path) as image:
            image.load()
            return image

    return Picture(str(path), read)


# --- pixels in memory ------------------------------------------------------------------------------------------------


def _loaded_picture(name: str, image: Image.Image) -> Picture:
    def read() -> Image.Image:
        with _loading:
            image.load()
        return image

    return Picture(name, read)


def _array_picture(name: str, pixels: NDArray[np.uint8]) -> Picture:
    """(height, width) or (height, width, channels)."""
    grey = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    return Picture(name, lambda: Image.fromarray(np.ascontiguousarray(grey)))


def _split_array(array: NDArray[Any]) -> list[NDArray[np.uint8]]:
    """One picture or many, each (height, width) or (height, width, channels)."""
    if array.dtype != np.uint8:
        raise MaqeeError(
            f"An array of {array.dtype} is no picture: give pixels from 0 to 255 as uint8, or normalised ones as a "
            "float tensor."
        )
    coloured = array.ndim in (3, 4) and array.shape[-1] in (1, 3, 4)
    if not (array.ndim == 2 or coloured) or 0 in array.shape[-3:]:
        raise MaqeeError(
            f"An array of shape {array.shape} is no picture: give (height, width), (height, width, 3) or "
            "(n, height, width, 3)."
        )
    return list(array) if array.ndim == 4 else [array]


def _tensor_pictures(tensor: Tensor, count: int) -> list[NamedPicture]:
    if tensor.is_floating_point():
        if tensor.ndim not in (3, 4):
            raise MaqeeError(
                f"A tensor of shape {tuple(tensor.shape)} is no batch of normalised images: give (n, channels, height, "
                "width)."
            )
        batch = tensor if tensor.ndim == 4 else tensor[None]
        return [NormalizedPicture(f"image {count + n}", values) for n, values in enumerate(batch)]
    coloured = tensor.ndim in (3, 4) and tensor.shape[-3] in (1, 3)
    if tensor.dtype != torch.uint8 or not (tensor.ndim == 2 or coloured):
        raise MaqeeError(
            f"A tensor of {tensor.dtype} and shape {tuple(tensor.shape)} is no picture: give pixels as uint8, (3, "
            "height, width) or (n, 3, height, width), or normalised ones as floats."
        )
    pixels = tensor.cpu().numpy()
    pictures = _split_array(pixels if tensor.ndim == 2 else np.moveaxis(pixels, -3, -1))
    return [_array_picture(f"image {count + n}", picture) for n, picture in enumerate(pictures)]
