"""The road from one exit to the next, with the decision at its end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, Self

from torch import Tensor

from maqee.exits.heads import ExitHead
from maqee.models import Backbone

Confidence = Callable[[Tensor], Tensor]  # predictions to one number a sample
Kept = Mapping[int, Tensor]  # tokens of earlier blocks that some head reads, by block number


class SegmentOutput(NamedTuple):
    """What a segment leaves behind.

    Attributes:
        x: tokens after its last block.
        kept: tokens after those of its blocks that some head reads later.
        output: the prediction of the exit at its end.
        confidence: of that prediction, one number a sample.
    """

    x: Tensor
    kept: dict[int, Tensor]
    output: Tensor
    confidence: Tensor


class RunSegment(Protocol):
    """The road from one exit to the next, however it is executed."""

    def __call__(self, x: Tensor, kept: Kept) -> SegmentOutput:
        """Images, or tokens in front of its first block, to the decision at its end."""

    def use_confidence(self, confidence: Confidence) -> None:
        """Decide by another confidence from now on."""

    def over_closed(self, first: int, read: frozenset[int]) -> RunSegment:
        """The road to the same exit where exits are closed; itself if that changes nothing.

        Args:
            first: the block that it begins with: an earlier one where the exits in front of it are closed.
            read: blocks whose tokens heads of open exits read.
        """


class Segment:
    """Runs the blocks between two exits and the head of the second one.

    Args:
        backbone: the network.
        first: 1-based number of the first block; with 1, the input is images and the embedding comes first.
        last: 1-based number of the last block.
        read: blocks whose tokens some head reads besides those of its own block.
        head: the exit's head; None for the backbone's own norm and classifier.
        confidence: maps predictions to one number a sample.
    """

    def __init__(
        self,
        backbone: Backbone,
        first: int,
        last: int,
        read: frozenset[int],
        head: ExitHead | None,
        confidence: Confidence,
    ) -> None:
        self.backbone, self.first, self.last, self.read = backbone, first, last, read
        self.head, self.confidence = head, confidence

    def __call__(self, x: Tensor, kept: Kept) -> SegmentOutput:
        """Images, or tokens before block `first`, to the decision after block `last`."""
        x, new = self.walk(x)
        output = self.predict(x, {**kept, **new})
        return SegmentOutput(x, new, output, self.confidence(output))

    def walk(self, x: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """The blocks alone."""
        tokens = self.backbone.embedding(x) if self.first == 1 else x
        new: dict[int, Tensor] = {}
        for number, x in self.backbone.walk(tokens, self.first, self.last):
            if number in self.read:
                new[number] = x
        return x, new

    def use_confidence(self, confidence: Confidence) -> None:
        """Decide by another confidence from now on."""
        self.confidence = confidence

    def over_closed(self, first: int, read: frozenset[int]) -> Self:
        """The road to the same exit where exits are closed; see `RunSegment`. A copy shares all modules with it."""
        if (first, read) == (self.first, self.read):
            return self
        longer = copy.copy(self)
        longer.first, longer.read = first, read
        return longer

    def predict(self, x: Tensor, kept: Kept) -> Tensor:
        """The head alone."""
        if self.head is None:
            return self.backbone.finish(x)
        return self.head(*(kept[block] for block in self.head.reads), x)
