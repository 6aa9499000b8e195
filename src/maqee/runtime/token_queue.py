"""What waits in front of a road: tokens of images that went on at the exit before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.exits.segment import Kept


class Group(NamedTuple):
    """Images that go through a road together.

    Attributes:
        numbers: of the images, in the order they came.
        x: images, or tokens in front of the road's first block.
        kept: tokens of earlier blocks that some head reads.
    """

    numbers: NDArray[np.int64]
    x: Tensor
    kept: Kept


class TokenQueue:
    """First in, first out, in memory that is got once: a batch that is taken lies in one piece and is not copied.

    There is room for two batches. Whole batches are taken, or all that is left; so what is taken always begins at the
    first or the second batch's place.

    Args:
        batch: images of a full batch.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.count = 0
        self._first = 0
        self._numbers = np.zeros(2 * batch, dtype=np.int64)
        self._x: Tensor | None = None
        self._kept: dict[int, Tensor] = {}

    def put(self, group: Group, rows: NDArray[np.int64]) -> None:
        """Copy these rows of a group behind those that wait."""
        assert self.count + len(rows) <= 2 * self.batch
        if self._x is None:
            self._x = self._room(group.x)
            self._kept = {block: self._room(tokens) for block, tokens in group.kept.items()}
        chosen = torch.from_numpy(rows).to(group.x.device, non_blocking=True)
        begin = (self._first + self.count) % (2 * self.batch)
        before_end = min(len(rows), 2 * self.batch - begin)
        for start, stop, place in ((0, before_end, begin), (before_end, len(rows), 0)):
            if start == stop:
                continue
            here = slice(place, place + stop - start)
            self._numbers[here] = group.numbers[rows[start:stop]]
            torch.index_select(group.x, 0, chosen[start:stop], out=self._x[here])
            for block, buffer in self._kept.items():
                torch.index_select(group.kept[block], 0, chosen[start:stop], out=buffer[here])
        self.count += len(rows)

    def take(self, count: int) -> Group:
        """The first ones: a full batch, or all there are. They stay readable until more is put."""
        assert self._x is not None
        assert count == self.batch or count == self.count < self.batch
        here = slice(self._first, self._first + count)
        kept = {block: buffer[here] for block, buffer in self._kept.items()}
        self.count -= count
        self._first = (self._first + self.batch) % (2 * self.batch) if self.count else 0
        return Group(self._numbers[here].copy(), self._x[here], kept)

    def _room(self, example: Tensor) -> Tensor:
        return example.new_empty((2 * self.batch, *example.shape[1:]))
