"""What waits in front of a road: tokens of images that went on at the exit before."""

from __future__ import annotations

from collections.abc import Callable
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


class TwoBatches(NamedTuple):
    """Memory for what waits in front of a road: two batches, one behind the other.

    Attributes:
        x: tokens in front of the road's first block.
        kept: tokens of earlier blocks that some head reads.
    """

    x: Tensor
    kept: dict[int, Tensor]

    def fits(self, group: Group, batch: int) -> bool:
        """Whether images like those of a group can wait here."""
        pairs = [(self.x, group.x), *((self.kept.get(block), tokens) for block, tokens in group.kept.items())]
        return len(self.kept) == len(group.kept) and all(
            memory is not None
            and memory.shape == (2 * batch, *tokens.shape[1:])
            and (memory.dtype, memory.device) == (tokens.dtype, tokens.device)
            for memory, tokens in pairs
        )

    def is_memory_of(self, x: Tensor, kept: Kept) -> bool:
        """Whether these tensors lie here, and nowhere else."""
        pairs = [(self.x, x), *((tokens, kept[block]) for block, tokens in self.kept.items())]
        return all(memory.data_ptr() == tensor.data_ptr() for memory, tensor in pairs)

    def rows(self, first: int, count: int) -> TwoBatches:
        """Some images of them."""
        here = slice(first, first + count)
        return TwoBatches(self.x[here], {block: tokens[here] for block, tokens in self.kept.items()})


def new_memory(queue: TokenQueue, group: Group) -> TwoBatches:
    """Of its own for a queue, where images like those of a group can wait."""

    def room(example: Tensor) -> Tensor:
        return example.new_empty((2 * queue.batch, *example.shape[1:]))

    return TwoBatches(room(group.x), {block: room(tokens) for block, tokens in group.kept.items()})


GetMemory = Callable[["TokenQueue", Group], TwoBatches]


class TokenQueue:
    """First in, first out, in memory that is got once: a batch that is taken lies in one piece and is not copied.

    There is room for two batches. Whole batches are taken, or all that is left; so what is taken always begins at the
    first or the second batch's place.

    Args:
        batch: images of a full batch.
        get_memory: called once, with this queue and a group: where images like these can wait while the queue lives.
    """

    def __init__(self, batch: int, get_memory: GetMemory = new_memory) -> None:
        self.batch, self.get_memory = batch, get_memory
        self.count = 0
        self._first = 0
        self._numbers = np.zeros(2 * batch, dtype=np.int64)
        self._memory: TwoBatches | None = None

    def put(self, group: Group, rows: NDArray[np.int64]) -> None:
        """Copy these rows of a group behind those that wait."""
        assert self.count + len(rows) <= 2 * self.batch
        if self._memory is None:
            self._memory = self.get_memory(self, group)
        chosen = torch.from_numpy(rows).to(group.x.device, non_blocking=True)
        begin = (self._first + self.count) % (2 * self.batch)
        before_end = min(len(rows), 2 * self.batch - begin)
        for start, stop, place in ((0, before_end, begin), (before_end, len(rows), 0)):
            if start == stop:
                continue
            self._numbers[place : place + stop - start] = group.numbers[rows[start:stop]]
            here = self._memory.rows(place, stop - start)
            torch.index_select(group.x, 0, chosen[start:stop], out=here.x)
            for block, tokens in here.kept.items():
                torch.index_select(group.kept[block], 0, chosen[start:stop], out=tokens)
        self.count += len(rows)

    def take(self, count: int) -> Group:
        """The first ones: a full batch, or all there are. They stay readable until more is put."""
        assert self._memory is not None
        assert count == self.batch or count == self.count < self.batch
        here = self._memory.rows(self._first, count)
        numbers = self._numbers[self._first : self._first + count].copy()
        self.count -= count
        self._first = (self._first + self.batch) % (2 * self.batch) if self.count else 0
        return Group(numbers, here.x, here.kept)
