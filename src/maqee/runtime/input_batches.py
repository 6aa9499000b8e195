"""Pictures to what a model takes, a batch at a time: as evaluation prepares them, to the last bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from maqee.data.images import as_shown, resize_and_crop
from maqee.data.transforms import prepare, to_device
from maqee.errors import MaqeeError
from maqee.models import Preprocessing
from maqee.runtime.pictures import Images, NamedPicture, NormalizedPicture, each_picture, list_pictures
from maqee.runtime.view import View


class Seen(NamedTuple):
    """A picture at the model's size: pixels (height, width, channels), or normalised (channels, height, width)."""

    values: NDArray[np.uint8] | Tensor
    view: View


@dataclass(frozen=True)
class InputBatch:
    """What a model takes.

    Attributes:
        names: of the pictures.
        images: (n, channels, height, width), normalised, on the model's device.
        views: what part of each picture that is.
    """

    names: tuple[str, ...]
    images: Tensor
    views: tuple[View, ...]


def read_batches(
    images: Images, preprocessing: Preprocessing, batch_size: int, device: torch.device
) -> Iterator[InputBatch]:
    """All pictures in order, no more than a batch of them in memory.

    Args:
        images: what `list_pictures` takes, or an iterator over such things, of which no more is taken than the next
            batch needs.
        preprocessing: how the model wants its images.
        batch_size: pictures of a batch.
        device: where batches are needed.
    """
    endless = isinstance(images, Iterator)
    pictures = each_picture(images) if isinstance(images, Iterator) else iter(list_pictures(images))
    with ThreadPoolExecutor() as pool:
        while chosen := list(itertools.islice(pictures, batch_size)):
            seen = _see_all(chosen, preprocessing, pool)
            if damaged := [picture for picture, one in zip(chosen, seen, strict=True) if one is None]:
                raise _all_unreadable(damaged, () if endless else pictures, preprocessing, pool)
            found = [one for one in seen if one is not None]
            yield InputBatch(
                tuple(picture.name for picture in chosen),
                to_batch(found, preprocessing, device),
                tuple(one.view for one in found),
            )


def _see_all(pictures: Iterable[NamedPicture], preprocessing: Preprocessing, pool: Executor) -> list[Seen | None]:
    return list(pool.map(lambda picture: see_picture(picture, preprocessing), pictures))


def see_picture(picture: NamedPicture, preprocessing: Preprocessing) -> Seen | None:
    """A picture as a model sees it; None where it cannot be decoded."""
    if isinstance(picture, NormalizedPicture):
        return _see_normalized(picture, preprocessing)
    channels = len(preprocessing.mean)
    if channels not in (1, 3):
        raise MaqeeError(f"The model takes images of {channels} channels: give normalised tensors, not pictures.")
    try:
        image = as_shown(picture.open(), preprocessing)
        image = image.convert("L") if channels == 1 else image  # grey stays as it is, colours become their luminance
        view = View.of(image.height, image.width, preprocessing)
        pixels = np.array(resize_and_crop(image, preprocessing))
    except MaqeeError as error:
        raise MaqeeError(f"{picture.name}: {error}") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return Seen(pixels.reshape(*preprocessing.image_size, channels), view)


def _see_normalized(picture: NormalizedPicture, preprocessing: Preprocessing) -> Seen:
    wanted = (len(preprocessing.mean), *preprocessing.image_size)
    if tuple(picture.values.shape) != wanted:
        raise MaqeeError(
            f"A normalised image has shape {tuple(picture.values.shape)}, and the model takes {wanted}: give pixels as "
            "uint8, which are scaled, or that shape."
        )
    return Seen(picture.values.float(), View.whole(*preprocessing.image_size))


def to_batch(seen: list[Seen], preprocessing: Preprocessing, device: torch.device) -> Tensor:
    """(n, channels, height, width), normalised. Pictures and tensors may be mixed."""
    parts: list[Tensor] = []
    for _, run in itertools.groupby(seen, key=lambda one: isinstance(one.values, Tensor)):
        values = [one.values for one in run]
        tensors = [value for value in values if isinstance(value, Tensor)]
        if tensors:
            parts.append(to_device(torch.stack(tensors), device))
            continue
        pixels = torch.from_numpy(np.stack([np.asarray(value) for value in values])).permute(0, 3, 1, 2)
        parts.append(prepare(to_device(pixels, device), preprocessing))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _all_unreadable(
    damaged: list[NamedPicture], rest: Iterable[NamedPicture], preprocessing: Preprocessing, pool: Executor
) -> MaqeeError:
    """The error that names the first damaged picture and counts them all."""
    count = len(damaged) + sum(one is None for one in _see_all(rest, preprocessing, pool))
    return unreadable(damaged[0].name, count)


def unreadable(first: str, count: int = 1) -> MaqeeError:
    """What to say about pictures that cannot be decoded."""
    if count == 1:
        return MaqeeError(f"{first} cannot be read as an image: remove or replace it.")
    return MaqeeError(f"{count} files cannot be read as images, the first is {first}: remove or replace them.")
