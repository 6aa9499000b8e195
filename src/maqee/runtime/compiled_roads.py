"""torch.compile for whole roads between two exits, for models that run on PyTorch and are not trained any more.

Block by block (`maqee.models.compiling`) is quicker to compile and is what training uses. A whole road is quicker to
run: the embedding and the head are in it, and the sum at the end of a block is joined with the norm of the next.

Only the number of images is left open. With sizes of images open too (`dynamic=True`), the compiler cannot tell that
tokens lie side by side, and copies them in front of every product of the first road.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maqee.exits import EarlyExitModel
from maqee.exits.segment import Confidence, Kept, RunSegment, SegmentOutput
from maqee.models.compiling import many_versions


def compile_roads(model: EarlyExitModel, **options: Any) -> None:
    """Compile every road of a model, in place, once for all numbers of images. Record graphs afterwards, if at all."""
    model.segments = [CompiledSegment(segment, **options) for segment in model.segments]


class CompiledSegment:
    """A road that is compiled when it first runs.

    Args:
        segment: the road.
        **options: of torch.compile.
    """

    def __init__(self, segment: RunSegment, **options: Any) -> None:
        self.segment, self._options = segment, options
        self._compiled = torch.compile(segment.__call__, **options)

    def __call__(self, x: Tensor, kept: Kept) -> SegmentOutput:
        """The same as the road itself."""
        for tokens in (x, *kept.values()):
            torch._dynamo.maybe_mark_dynamic(tokens, 0)
        with many_versions():  # all roads of all models share one code
            found: SegmentOutput = self._compiled(x, kept)
        return found

    def use_confidence(self, confidence: Confidence) -> None:
        """Decide by another confidence; what was compiled with the old one is forgotten."""
        self.segment.use_confidence(confidence)
        self._compiled = torch.compile(self.segment.__call__, **self._options)

    def over_closed(self, first: int, read: frozenset[int]) -> CompiledSegment:
        """The road to the same exit where exits are closed; see `RunSegment`. It is compiled by itself."""
        segment = self.segment.over_closed(first, read)
        return self if segment is self.segment else CompiledSegment(segment, **self._options)
