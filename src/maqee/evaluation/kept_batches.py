"""Images that several models are measured on one after the other: read and prepared once, if they fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from maqee.data import ImageSet
from maqee.evaluation.record import Batch, evaluation_batches
from maqee.exits import Network

ROOM = 8 << 30  # bytes of prepared images; 10,000 of 224 pixels take 6 GB


def keep_batches(network: Network, data: ImageSet, room: int = ROOM) -> Iterable[Batch]:
    """Batches that can be gone through again and again, on the network's device.

    Args:
        network: decides how images are prepared, and where they lie.
        data: the images.
        room: bytes; images that need more are read anew each time.
    """
    again = _ReadAgain(network, data)
    images, _ = next(iter(again))
    return again if images.nbytes // len(images) * len(data) > room else list(again)


class _ReadAgain:
    """Batches that are read and prepared whenever they are gone through."""

    def __init__(self, network: Network, data: ImageSet) -> None:
        self.network, self.data = network, data

    def __iter__(self) -> Iterator[Batch]:
        return evaluation_batches(self.network, self.data)
