"""The graphs of all segments of a model."""

from __future__ import annotations

from typing import NamedTuple

import onnx
import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.segment import Segment
from maqee.runtime.export import network_operations, shape_operations  # noqa: F401 - they register what they know
from maqee.runtime.export.marks import marked
from maqee.runtime.export.traced import EXAMPLE, write_segment


class SegmentGraph(NamedTuple):
    """One segment as ONNX.

    Attributes:
        block: the block it ends after.
        reads: blocks of earlier segments whose tokens it takes, in the order of its inputs.
        keeps: blocks of its own whose tokens it gives out for later segments, in the order of its outputs.
        model: the file.
    """

    block: int
    reads: tuple[int, ...]
    keeps: tuple[int, ...]
    model: onnx.ModelProto


@torch.no_grad()
def segment_graphs(model: EarlyExitModel, packed: bool = True) -> list[SegmentGraph]:
    """Every segment in its order, as it runs by torch; the model is on the CPU and stays as it is.

    Args:
        model: the network, compressed or not.
        packed: whether weights are stored with no more bits than they need; see `GraphWriter`.
    """
    config = model.backbone.config
    x = torch.zeros(EXAMPLE, config.channels, *config.image_size)
    available: dict[int, Tensor] = {}
    graphs: list[SegmentGraph] = []
    with marked(model) as coded:
        for segment in model.segments:
            if not isinstance(segment, Segment):
                raise MaqeeError("The model runs on another engine already: load it with engine='torch' to export it.")
            found = segment(x, available)
            reads = tuple(block for block in (segment.head.reads if segment.head else ()) if block in available)
            kept = {block: available[block] for block in dict.fromkeys(reads)}
            graph = write_segment(segment, x, kept, found, coded, f"to block {segment.last}", packed)
            graphs.append(SegmentGraph(segment.last, tuple(kept), tuple(found.kept), graph))
            # One tensor in two places would be one input of the next graph.
            x, available = found.x.clone(), {**available, **found.kept}
    return graphs
