"""A thread that reads ahead, so that what comes in is fetched and decoded while the model computes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

PATIENCE = 5.0  # seconds to wait for the thread at the end; a source that blocks longer keeps it until it speaks again


class Read(NamedTuple, Generic[Item]):
    """Something that the thread has read.

    Attributes:
        item: what the source gave.
        size: how much room it takes.
        time: when it was read, by `time.monotonic`.
    """

    item: Item
    size: int
    time: float


class ReadAhead(Generic[Item]):
    """Iterates over a source in a thread of its own, no further ahead than there is room.

    Args:
        source: what to read; it is iterated over in the thread.
        size: how much room an item takes.
        room: how much may be read and not taken yet; one more item is begun as long as less is.

    Attributes:
        ended: whether all was taken and nothing more will come.
        error: what the source failed with; it ended there, and what it gave before was still read.
    """

    def __init__(self, source: Iterable[Item], size: Callable[[Item], int], room: int) -> None:
        self.error: BaseException | None = None
        self._read: deque[Read[Item]] = deque()
        self._size, self._room, self._used = size, room, 0
        self._finished = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, args=(source,), name="maqee-read-ahead", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether all was taken and nothing more will come."""
        with self._changed:
            return self._finished and not self._read

    def take(self, most: int, timeout: float | None = None) -> list[Read[Item]]:
        """What was read, up to so much and at least one item: waits for that.

        Args:
            most: how much room the items may take together; a first one that is larger is given all the same.
            timeout: seconds to wait at most; nothing is given after that, or at the end.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._read or self._finished, timeout)
            taken: list[Read[Item]] = []
            while self._read and (not taken or self._read[0].size <= most):
                taken.append(self._read.popleft())
                most -= taken[-1].size
                self._used -= taken[-1].size
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Stop reading and wait for the thread."""
        with self._changed:
            self._closed = True
            self._read.clear()
            self._changed.notify_all()
        self._thread.join(PATIENCE)

    def _work(self, source: Iterable[Item]) -> None:
        try:
            for item in source:
                if not self._give(item):
                    break
        except BaseException as error:  # it is raised where the stream is read
            self.error = error
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def _give(self, item: Item) -> bool:
        """Keep an item and wait for room for the next; False where nobody wants more."""
        read = Read(item, self._size(item), time.monotonic())
        with self._changed:
            self._read.append(read)
            self._used += read.size
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._used < self._room or self._closed)
            return not self._closed
