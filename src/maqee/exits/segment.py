"""The road between two exits."""

from __future__ import annotations

from torch import Tensor

from maqee.models import Backbone


class Segment:
    """Runs the blocks from one exit to the next, as one function that can be compiled.

    Args:
        backbone: the network.
        first: 1-based number of the first block.
        last: 1-based number of the last block.
        keep: blocks whose tokens some head reads besides those of its own block.
    """

    def __init__(self, backbone: Backbone, first: int, last: int, keep: frozenset[int]) -> None:
        self.backbone, self.first, self.last, self.keep = backbone, first, last, keep

    def __call__(self, x: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
        """Tokens before block `first` to tokens after block `last`, and what is to be kept on the way."""
        kept: dict[int, Tensor] = {}
        for number in range(self.first, self.last + 1):
            x = self.backbone.blocks[number - 1](self.backbone.before(number, x))
            if number in self.keep:
                kept[number] = x
        return x, kept
