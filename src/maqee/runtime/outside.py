"""Segments that another program than PyTorch runs: numbers go out as numpy arrays and come back as such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits.segment import Confidence, Kept, SegmentOutput

if TYPE_CHECKING:
    import onnx

    from maqee.runtime.ready import ReadyModel

Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]  # all inputs of a graph to all its outputs, in its order
Start = Callable[["onnx.ModelProto"], Run]


class OutsideSegment:
    """A segment that was written as a graph.

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


def run_outside(model: ReadyModel, device: torch.device, engine: str, start: Start, packed: bool) -> ReadyModel:
    """Let another program run the segments of a model, in place.

    Args:
        model: as it was loaded, or with such segments already.
        device: must be the CPU.
        engine: its name, for errors.
        start: makes a graph ready to run.
        packed: whether it puts packed weights together; see `GraphWriter`.
    """
    from maqee.runtime.export.segment_files import segment_graphs

    if device.type != "cpu":
        raise MaqeeError(f"The engine {engine} runs on the CPU, not on {device}: give the device cpu.")
    network = model.model.to(device)
    if not all(isinstance(segment, OutsideSegment) for segment in network.segments):
        network.segments = [
            OutsideSegment(start(found.model), found.reads, found.keeps) for found in segment_graphs(network, packed)
        ]
    return model


def _to_array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().to(torch.float32).contiguous().numpy()
    return array
