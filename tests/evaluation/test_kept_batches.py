"""Images are kept where there is room, read again where there is none, and the same either way."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from maqee.evaluation.kept_batches import keep_batches
from maqee.evaluation.record import Batch, evaluation_batches
from tests.compression.makers import digits
from tests.helpers import load_miniature


def test_kept_or_read_again() -> None:
    model, data = load_miniature(), digits("test", 40)
    needed = 40 * 16 * 16 * 4

    def read() -> Iterator[Batch]:
        return evaluation_batches(model, data)

    kept, again = keep_batches(read, 40, needed), keep_batches(read, 40, needed - 1)
    assert isinstance(kept, list)
    assert not isinstance(again, list)
    for _ in range(2):
        for batches in (kept, again):
            for one, other in zip(batches, read(), strict=True):
                assert torch.equal(one[0], other[0])
                assert torch.equal(one[1], other[1])
