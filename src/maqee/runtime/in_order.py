"""Answers that are given in any order and handed out in the order the images came."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.exits import Decision

DONE = -1  # the road of an image that waits on none any more


class InOrder:
    """The images that have begun and were not handed out yet.

    Images are numbered from 0 as they begin. Answers lie in a ring that grows as it must, so that writing those of a
    whole batch is one operation on the device, and so is handing out all that are ready.

    Args:
        limit: how many images there may be at a time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.first = 0  # number of the oldest image
        self.count = 0
        self._roads = np.full(1, DONE, dtype=np.int64)  # by number modulo the ring's size
        self._answers: Decision | None = None

    @property
    def room(self) -> int:
        """How many more images may begin."""
        return self.limit - self.count

    @property
    def oldest_road(self) -> int | None:
        """The road on which the oldest image waits; None where there is none, or it is finished."""
        road = int(self._roads[self.first % len(self._roads)]) if self.count else DONE
        return None if road == DONE else road

    def begin(self, count: int) -> NDArray[np.int64]:
        """Numbers for images that begin now."""
        assert count <= self.room
        if self.count + count > len(self._roads):
            self._grow(min(self.limit, max(self.count + count, 2 * len(self._roads))))
        numbers = np.arange(self.first + self.count, self.first + self.count + count)
        self.count += count
        self.move(numbers, 0)
        return numbers

    def move(self, numbers: NDArray[np.int64], road: int) -> None:
        """Note on which road images wait; `DONE` for those whose answer stands."""
        self._roads[numbers % len(self._roads)] = road

    def write(self, numbers: NDArray[np.int64], output: Tensor, index: int, confidence: Tensor) -> None:
        """Answers of an exit. Whoever goes on from there is written again at a later one."""
        if self._answers is None:
            self._answers = Decision(
                _ring(output, len(self._roads)),
                torch.empty(len(self._roads), dtype=torch.int64, device=output.device),
                _ring(confidence, len(self._roads)),
            )
        where = torch.from_numpy(numbers % len(self._roads)).to(output.device, non_blocking=True)
        self._answers.output.index_copy_(0, where, output)
        self._answers.exit.index_fill_(0, where, index)
        self._answers.confidence.index_copy_(0, where, confidence)

    def hand_out(self) -> Decision | None:
        """All answers up to the oldest image that has none; None where that is the first."""
        if not self.count or self.oldest_road is not None:
            return None
        assert self._answers is not None
        places = self._places()
        unfinished = (self._roads[places] != DONE).nonzero()[0]
        ready = int(unfinished[0]) if len(unfinished) else self.count
        where = torch.from_numpy(places[:ready]).to(self._answers.exit.device, non_blocking=True)
        self.first += ready
        self.count -= ready
        return Decision(*(values[where] for values in self._answers))

    def _places(self) -> NDArray[np.int64]:
        """Where the images lie in the ring, the oldest first."""
        return np.arange(self.first, self.first + self.count) % len(self._roads)

    def _grow(self, size: int) -> None:
        old, new = self._places(), np.arange(self.first, self.first + self.count) % size
        roads = np.full(size, DONE, dtype=np.int64)
        roads[new] = self._roads[old]
        if self._answers is not None:
            source, target = torch.from_numpy(old), torch.from_numpy(new)
            grown = Decision(*(_ring(values, size) for values in self._answers))
            for wide, narrow in zip(grown, self._answers, strict=True):
                wide[target.to(wide.device)] = narrow[source.to(wide.device)]
            self._answers = grown
        self._roads = roads


def _ring(example: Tensor, size: int) -> Tensor:
    return example.new_empty((size, *example.shape[1:]))
