"""Segments that another program than PyTorch runs: numbers go out as numpy arrays and come back as such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.segment import Confidence, Kept, RunSegment, SegmentOutput

if TYPE_CHECKING:
    import onnx

    from maqee.runtime.ready import ReadyModel

Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]  # all inputs of a graph to all its outputs, in its order
Start = Callable[["onnx.ModelProto"], Run]


class OutsideGraph:
    """A segment that was written as a graph and is ready to run.

    Args:
        run: runs the graph.
        reads: blocks of earlier segments whose tokens it takes.
        keeps: blocks of its own whose tokens it gives out.
    """

    def __init__(self, run: Run, reads: Sequence[int], keeps: Sequence[int]) -> None:
        self.run, self.reads, self.keeps = run, reads, keeps
        self.confidence: Confidence | None = None  # the one in the graph

    def __call__(self, x: Tensor, kept: Kept) -> SegmentOutput:
        """Images or tokens to the decision at its end."""
        inputs = [_to_array(tokens) for tokens in (x, *(kept[block] for block in self.reads))]
        tokens, output, confidence, *new = (torch.from_numpy(array) for array in self.run(inputs))
        if self.confidence is not None:
            confidence = self.confidence(output)
        return SegmentOutput(tokens, dict(zip(self.keeps, new, strict=True)), output, confidence)

    def use_confidence(self, confidence: Confidence) -> None:
        """Decide by another confidence; it is computed here from what the graph puts out."""
        self.confidence = confidence


class OutsideSegment:
    """A segment that is written as a graph, and made ready to run, when it is first needed.

    Args:
        plain: the segment as it runs by torch.
        translate: writes it and makes it ready.
    """

    def __init__(self, plain: RunSegment, translate: Callable[[RunSegment], OutsideGraph]) -> None:
        self.plain, self.translate = plain, translate
        self.confidence: Confidence | None = None

    @cached_property
    def ready(self) -> OutsideGraph:
        """The graph, ready to run."""
        segment = self.translate(self.plain)
        if self.confidence is not None:
            segment.use_confidence(self.confidence)
        return segment

    def __call__(self, x: Tensor, kept: Kept) -> SegmentOutput:
        """Images or tokens to the decision at its end."""
        return self.ready(x, kept)

    def use_confidence(self, confidence: Confidence) -> None:
        """Decide by another confidence; it is computed here from what the graph puts out."""
        self.confidence = confidence
        if "ready" in self.__dict__:
            self.ready.use_confidence(confidence)

    def over_closed(self, first: int, read: frozenset[int]) -> OutsideSegment:
        """The road to the same exit where exits are closed; see `RunSegment`. It is a graph of its own."""
        plain = self.plain.over_closed(first, read)
        if plain is self.plain:
            return self
        longer = OutsideSegment(plain, self.translate)
        longer.confidence = self.confidence
        return longer


def run_outside(model: ReadyModel, device: torch.device, engine: str, start: Start, packed: bool) -> ReadyModel:
    """Let another program run the roads of a model, in place.

    Those that its policy takes are made ready now, others when a policy first takes them.

    Args:
        model: as it was loaded, or with such roads already.
        device: must be the CPU.
        engine: its name, for errors.
        start: makes a graph ready to run.
        packed: whether it puts packed weights together; see `GraphWriter`.
    """
    if device.type != "cpu":
        raise MaqeeError(f"The engine {engine} runs on the CPU, not on {device}: give the device cpu.")
    network = model.model.to(device)
    if not all(isinstance(segment, OutsideSegment) for segment in network.segments):
        network.segments = outside_segments(network, start, packed)
    for road in network.roads(model.policy):
        assert isinstance(road.segment, OutsideSegment)
        _ = road.segment.ready
    return model


def outside_segments(network: EarlyExitModel, start: Start, packed: bool) -> list[RunSegment]:
    """The segments of a network that runs by torch, for another program; the arguments are those of `run_outside`."""
    from maqee.runtime.export.segment_files import segment_graph

    def translate(segment: RunSegment) -> OutsideGraph:
        found = segment_graph(network, segment, packed)
        return OutsideGraph(start(found.model), found.reads, found.keeps)

    return [OutsideSegment(segment, translate) for segment in network.segments]


def _to_array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().to(torch.float32).contiguous().numpy()
    return array
