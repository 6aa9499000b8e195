"""Images that several models are measured on one after the other: read and prepared once, if they fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from maqee.evaluation.record import Batch
from maqee.spare_memory import spare_bytes


def keep_batches(read: Callable[[], Iterator[Batch]], images: int, room: int | None = None) -> Iterable[Batch]:
    """Batches that can be gone through again and again.

    Args:
        read: reads and prepares all of them.
        images: how many images they have in all.
        room: bytes; images that need more are read anew each time. Left out, what the device can spare.
    """
    first, _ = next(read())
    room = spare_bytes(first.device) if room is None else room
    return _ReadAgain(read) if first.nbytes // len(first) * images > room else list(read())


class _ReadAgain:
    """Batches that are read and prepared whenever they are gone through."""

    def __init__(self, read: Callable[[], Iterator[Batch]]) -> None:
        self.read = read

    def __iter__(self) -> Iterator[Batch]:
        return self.read()
