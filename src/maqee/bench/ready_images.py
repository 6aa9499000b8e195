"""Real images, decoded and prepared before a clock runs, a part at a time so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.data import ImageSet, eval_batches
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing

BYTES_ON_CPU = 512 * 2**20
SHARE_OF_GPU = 4  # a quarter of what is free


class View(NamedTuple):
    """How a model wants its images, and in which numbers."""

    preprocessing: Preprocessing
    dtype: torch.dtype


class Chunk(NamedTuple):
    """Some of the images.

    Attributes:
        start: number of the first.
        stop: number behind the last.
        batches: of every view.
    """

    start: int
    stop: int
    batches: dict[View, list[Tensor]]


def draw_some(source: ImageSet, count: int, seed: int) -> Tensor:
    """Numbers of so many images at random, ascending."""
    if not 0 < count <= len(source):
        raise MaqeeError(f"Cannot take {count} of the {len(source)} images of {source.name}: give 1 to {len(source)}.")
    return torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))[:count].sort().values


def prepared_chunks(data: ImageSet, views: Sequence[View], batch_size: int, device: torch.device) -> Iterator[Chunk]:
    """All images in order, as every view wants them, on the device, as many at a time as memory should hold."""
    wanted = list(dict.fromkeys(views))
    size = chunk_size(wanted, batch_size, device)
    for start in range(0, len(data), size):
        stop = min(start + size, len(data))
        part = data.select(range(start, stop))
        yield Chunk(start, stop, {view: _prepare(part, view, batch_size, device) for view in wanted})


def chunk_size(views: Sequence[View], batch_size: int, device: torch.device) -> int:
    """Images that fit, in whole batches."""
    room = torch.cuda.mem_get_info(device)[0] // SHARE_OF_GPU if device.type == "cuda" else BYTES_ON_CPU
    image = 0
    for preprocessing, dtype in views:
        height, width = preprocessing.image_size
        image += len(preprocessing.mean) * height * width * dtype.itemsize
    return max(1, room // (image * batch_size)) * batch_size


def _prepare(part: ImageSet, view: View, batch_size: int, device: torch.device) -> list[Tensor]:
    return [images.to(view.dtype) for images, _ in eval_batches(part, view.preprocessing, batch_size, device)]
