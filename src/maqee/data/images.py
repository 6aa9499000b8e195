"""Where pixels come from: an array in memory, or files that are decoded when they are asked for."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from maqee.data.orientation import turn_upright
from maqee.data.transforms import to_device
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing

IMAGE_ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"}


def image_files(folder: Path) -> list[Path]:
    """Every image below a folder, sorted; files with other endings are not looked at."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_ENDINGS and path.is_file())


class ImageSource(Protocol):
    """A numbered collection of images."""

    def __len__(self) -> int: ...

    def load(self, indices: Sequence[int] | Tensor, preprocessing: Preprocessing) -> Tensor:
        """Pixels as uint8 (n, channels, height, width): at their native size, or already at the model's."""

    def digests(self) -> list[bytes]:
        """A hash of each image's content, to find the same image in two places."""

    def name(self, index: int) -> str:
        """What to call an image in a message."""

    def select(self, indices: Sequence[int]) -> ImageSource:
        """Some of the images."""

    def to(self, device: torch.device) -> ImageSource:
        """Move what is in memory to a device."""


class ArrayImages:
    """Images of one size, all in memory."""

    def __init__(self, pixels: Tensor, names: Sequence[str] | None = None) -> None:
        """Pixels: uint8 (n, channels, height, width)."""
        self.pixels = pixels
        self.names = names

    def __len__(self) -> int:
        return self.pixels.shape[0]

    def load(self, indices: Sequence[int] | Tensor, preprocessing: Preprocessing) -> Tensor:
        """The images at their native size, on the device they lie on."""
        return self.pixels[to_device(torch.as_tensor(indices), self.pixels.device)]

    def digests(self) -> list[bytes]:
        """Hashes of the pixels."""
        pixels = self.pixels.cpu().numpy()
        return [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in pixels]

    def name(self, index: int) -> str:
        """The original file's name where it is known."""
        return self.names[index] if self.names else f"image {index}"

    def select(self, indices: Sequence[int]) -> ArrayImages:
        """Some of the images, in this order."""
        names = [self.names[index] for index in indices] if self.names else None
        return ArrayImages(self.pixels[torch.as_tensor(indices, device=self.pixels.device)], names)

    def to(self, device: torch.device) -> ArrayImages:
        """Move the pixels."""
        return ArrayImages(self.pixels.to(device), self.names)


class Entry(Protocol):
    """An encoded image, wherever it lies."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def place(self) -> str:
        """Where a user finds it."""

    def read(self) -> bytes:
        """The encoded bytes."""


@dataclass(frozen=True)
class MemoryEntry:
    """An encoded image in memory, as out of a table."""

    name: str
    data: bytes

    @property
    def place(self) -> str:
        """Its name says it."""
        return self.name

    def read(self) -> bytes:
        """The encoded bytes."""
        return self.data


@dataclass(frozen=True)
class FileEntry:
    """An encoded image: a whole file, or a stretch of a tar archive."""

    name: str
    path: Path
    offset: int = 0
    size: int | None = None

    @property
    def place(self) -> str:
        """Where a user finds it."""
        return self.name if self.size is None else f"{self.name} in {self.path}"

    def read(self) -> bytes:
        """The encoded bytes."""
        if self.size is None:
            return self.path.read_bytes()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            return os.pread(descriptor, self.size, self.offset)
        finally:
            os.close(descriptor)


class FileImages:
    """Encoded images, decoded on demand by a few threads, resized and cropped with Pillow.

    Args:
        entries: the images.
        turn: turn pictures as their EXIF data says, where the model's preprocessing wants that. Not for pictures with
            masks or boxes, which belong to the pixels as they are stored.
    """

    def __init__(self, entries: Sequence[Entry], turn: bool = True) -> None:
        self.entries, self.turn = list(entries), turn
        self._digests: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def load(self, indices: Sequence[int] | Tensor, preprocessing: Preprocessing) -> Tensor:
        """RGB images at the model's size; if one is corrupt, the error counts all corrupt ones."""
        chosen = [self.entries[int(index)] for index in indices]
        with ThreadPoolExecutor() as pool:
            arrays = list(pool.map(lambda entry: self._try_decode(entry, preprocessing), chosen))
        if bad := [entry for entry, array in zip(chosen, arrays, strict=True) if array is None]:
            self._report_corrupt(bad, preprocessing)
        return torch.from_numpy(np.stack([array for array in arrays if array is not None])).permute(0, 3, 1, 2)

    def _report_corrupt(self, known: list[Entry], preprocessing: Preprocessing) -> None:
        with ThreadPoolExecutor() as pool:
            arrays = pool.map(lambda entry: self._try_decode(entry, preprocessing), self.entries)
            bad = [entry for entry, array in zip(self.entries, arrays, strict=True) if array is None] or known
        raise MaqeeError(
            f"{len(bad)} of {len(self)} images cannot be decoded, the first is {bad[0].place}: remove or replace them."
        )

    def digests(self) -> list[bytes]:
        """Hashes of the encoded files, which are read once."""
        if self._digests is None:
            self._digests = [hashlib.blake2b(entry.read(), digest_size=16).digest() for entry in self.entries]
        return self._digests

    def name(self, index: int) -> str:
        """The file's name."""
        return self.entries[index].name

    def select(self, indices: Sequence[int]) -> FileImages:
        """Some of the images, in this order."""
        return FileImages([self.entries[index] for index in indices], self.turn)

    def to(self, device: torch.device) -> FileImages:
        """Files stay where they are."""
        return self

    def _try_decode(self, entry: Entry, preprocessing: Preprocessing) -> np.ndarray | None:
        """(height, width, 3) uint8, or None if the file is no readable image."""
        try:
            with Image.open(io.BytesIO(entry.read())) as file:
                return np.asarray(resize_and_crop(as_shown(file, preprocessing, self.turn), preprocessing))
        except MaqeeError as error:
            raise MaqeeError(f"{entry.place}: {error}") from error
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None


def as_shown(image: Image.Image, preprocessing: Preprocessing, turn: bool = True) -> Image.Image:
    """A picture at its own size as the model wants it shown: the right way up, three channels of eight bits.

    Args:
        image: the picture as it is stored.
        preprocessing: says whether EXIF data count, and what is seen where a picture is transparent.
        turn: False leaves it lying as it is stored all the same.
    """
    upright = turn_upright(image) if turn and preprocessing.exif else image
    return as_rgb(upright, preprocessing.transparent)


def as_rgb(image: Image.Image, transparent: Literal["drop", "white"] = "drop") -> Image.Image:
    """Eight bits a channel, three channels. Pillow alone would clip 16-bit grey images to white."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if transparent == "white" and image.has_transparency_data:
        ground = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(ground, image.convert("RGBA"))
    return image.convert("RGB")


def resize_and_crop(image: Image.Image, preprocessing: Preprocessing, fill: int = 0) -> Image.Image:
    """Scale a picture and cut out its centre; `fill` is what stands where it is too small for that."""
    height, width = preprocessing.scaled_size(image.height, image.width)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling[preprocessing.resample.upper()])
    (rows, columns), (top, left) = preprocessing.image_size, preprocessing.corner(height, width)
    if (rows, columns) == (height, width):
        return image
    if top >= 0 and left >= 0:
        return image.crop((left, top, left + columns, top + rows))
    canvas = Image.new(image.mode, (columns, rows), (fill,) * len(image.getbands()))
    canvas.paste(image, (-left, -top))
    return canvas
