"""The graphs of the roads of a model."""

from __future__ import annotations

from typing import NamedTuple

import onnx
import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.segment import RunSegment, Segment
from maqee.policy import Policy
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


def segment_graphs(model: EarlyExitModel, packed: bool = True, policy: Policy | None = None) -> list[SegmentGraph]:
    """Every road in its order, as it runs by torch; the model is on the CPU and stays as it is.

    Args:
        model: the network, compressed or not.
        packed: whether weights are stored with no more bits than they need; see `GraphWriter`.
        policy: roads lead over the exits that it closes; left out, to every exit.
    """
    segments = model.segments if policy is None else [road.segment for road in model.roads(policy)]
    return [segment_graph(model, segment, packed) for segment in segments]


def segment_graph(model: EarlyExitModel, segment: RunSegment, packed: bool = True) -> SegmentGraph:
    """One of them. The arguments are those of `segment_graphs`."""
    if not isinstance(segment, Segment):
        raise MaqeeError("The model runs on another engine already: load it with engine='torch' to export it.")
    with torch.inference_mode(False), torch.no_grad(), marked(model) as coded:
        x, available = _in_front_of(segment, model)
        found = segment(x, available)
        graph = write_segment(segment, x, available, found, coded, f"to block {segment.last}", packed)
    return SegmentGraph(segment.last, tuple(available), tuple(found.kept), graph)


def _in_front_of(segment: Segment, model: EarlyExitModel) -> tuple[Tensor, dict[int, Tensor]]:
    """Examples of what a segment takes: images or tokens, and the tokens of earlier blocks that its head reads."""
    config = model.backbone.config
    x, read = torch.zeros(EXAMPLE, config.channels, *config.image_size), dict[int, Tensor]()
    if segment.first > 1:
        wanted = segment.head.reads if segment.head else ()
        tokens = dict(model.backbone.walk(model.backbone.embedding(x), 1, segment.first - 1))
        # One tensor in two places would be one input of the graph.
        x, read = tokens[segment.first - 1].clone(), {block: tokens[block] for block in wanted if block in tokens}
    return x, read
