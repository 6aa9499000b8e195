"""CUDA graphs for early exit: one launch for each road between two exits, whatever the number of samples left.

Launching a small transformer's kernels one by one takes the host longer than the GPU takes to run them, and at every
exit the GPU waits for the host to see how many samples stay. A recorded graph is one launch. Graphs have fixed shapes,
so batches are filled up to the next size on a ladder of eight steps an octave (at most an eighth of padding).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.segment import Confidence, Kept, RunSegment, SegmentOutput
from maqee.runtime.token_queue import Group, TokenQueue, TwoBatches, new_memory

T = TypeVar("T")
Replay = Callable[[], None]
Record = Callable[[Callable[[], SegmentOutput]], tuple[Replay, SegmentOutput]]


def use_cuda_graphs(model: EarlyExitModel) -> None:
    """Let `model.run` and streams replay recorded graphs, in place. A graph is recorded when its size first occurs.

    For roads of PyTorch and of the engine triton. The model's weights may change afterwards (graphs read them where
    they lie), its modules may not. Compile roads first, if at all (`compile_roads`). Each size keeps memory for what
    goes in and what comes out; a second call begins anew.
    """
    device = next(model.parameters()).device
    if device.type != "cuda":
        raise MaqeeError("CUDA graphs need the model on a GPU: move it there first.")
    forget_graphs(model)
    model.segments = [GraphedSegment(segment, CudaRecorder(device)) for segment in model.segments]


def forget_graphs(model: EarlyExitModel) -> None:
    """Let a model run without graphs again, in place; where it has none, nothing happens."""
    model.segments = plain_segments(model)


def plain_segments(model: EarlyExitModel) -> list[RunSegment]:
    """The roads of a model that are recorded, where graphs are used, or will be."""
    return [segment.segment if isinstance(segment, GraphedSegment) else segment for segment in model.segments]


def padded_size(count: int) -> int:
    """The next size on the ladder: powers of two up to 16, then eight steps an octave.

    Example:
        >>> [padded_size(count) for count in (1, 3, 17, 100, 130, 256)]
        [1, 4, 18, 104, 144, 256]
    """
    octave = 1 << (count - 1).bit_length() if count > 1 else 1  # the smallest power of two that is enough
    step = max(octave // 16, 1) if octave > 16 else octave
    return -(-count // step) * step


class RecordedGraph(NamedTuple):
    """A graph with the memory it reads and writes."""

    x: Tensor
    kept: dict[int, Tensor]
    outputs: SegmentOutput
    replay: Replay


class Reader(Protocol):
    """Whoever reads what a recorded road put out, and may not have done so yet."""

    def keep_outputs(self, segment: GraphedSegment) -> None:
        """Copy what is still needed: the road is about to write over it."""


class GraphedSegment:
    """A segment that is recorded once for each size and then replayed. Its tokens stand until it runs again.

    Input is copied to where the graph reads it. A stream, whose batches all have one size, lets images wait where two
    more graphs read them (`lend`), and saves that copy.

    Args:
        segment: what to record.
        record: how; it runs a function and returns a way to run it again on the same memory.

    Attributes:
        readers: who is told before tokens are written over; nobody is kept alive by it.
    """

    def __init__(self, segment: RunSegment, record: Record) -> None:
        self.segment, self.record = segment, record
        self.readers: weakref.WeakSet[Reader] = weakref.WeakSet()
        self.recorded: dict[int, RecordedGraph] = {}
        self._lent: TwoBatches | None = None
        self._in_place: dict[int, RecordedGraph] = {}  # of the batches in lent memory, by their first row
        self._borrower: Callable[[], TokenQueue | None] = lambda: None

    def __call__(self, x: Tensor, kept: Kept) -> SegmentOutput:
        """The same as the segment itself."""
        count = x.shape[0]
        for reader in self.readers:
            reader.keep_outputs(self)
        outputs = self._replay_in_place(x, kept) or self._replay_copied(x, kept)
        # Tokens are read before this road runs again: by the next roads of a run, or by a stream, which copies them
        # when it is told. Answers are handed to the caller, so they get memory of their own.
        return SegmentOutput(
            outputs.x[:count],
            {block: tokens[:count] for block, tokens in outputs.kept.items()},
            outputs.output[:count].clone(),
            outputs.confidence[:count].clone(),
        )

    def lend(self, queue: TokenQueue, group: Group) -> TwoBatches:
        """Memory for a queue in front of this road, as long as the queue lives: full batches are read where they lie.

        It is kept for the next stream. A second stream at the same time gets memory that is no graph's.
        """
        if self._borrower() is not None or padded_size(queue.batch) != queue.batch:
            return new_memory(queue, group)
        if self._lent is None or not self._lent.fits(group, queue.batch):
            self._lent, self._in_place = new_memory(queue, group), {}
        self._borrower = weakref.ref(queue)
        return self._lent

    def use_confidence(self, confidence: Confidence) -> None:
        """Decide by another confidence; graphs that were recorded with the old one are forgotten."""
        self.segment.use_confidence(confidence)
        self.recorded.clear()
        self._in_place.clear()

    def over_closed(self, first: int, read: frozenset[int]) -> GraphedSegment:
        """The road to the same exit where exits are closed; see `RunSegment`. It is recorded by itself."""
        segment = self.segment.over_closed(first, read)
        return self if segment is self.segment else GraphedSegment(segment, self.record)

    def _replay_in_place(self, x: Tensor, kept: Kept) -> SegmentOutput | None:
        """Where the input lies in memory that was lent, as a full batch; else None, and nothing happens."""
        count = len(x)
        if self._lent is None or 2 * count != len(self._lent.x):
            return None
        for first in (0, count):
            rows = self._lent.rows(first, count)
            if rows.is_memory_of(x, kept):
                if first not in self._in_place:
                    self._in_place[first] = self._record(*rows)
                self._in_place[first].replay()
                return self._in_place[first].outputs
        return None

    def _replay_copied(self, x: Tensor, kept: Kept) -> SegmentOutput:
        count, size = len(x), padded_size(len(x))
        if size not in self.recorded:
            self.recorded[size] = self._record(
                _room(x, size), {block: _room(tokens, size) for block, tokens in kept.items()}
            )
        graph = self.recorded[size]
        graph.x[:count].copy_(x)
        for block, buffer in graph.kept.items():
            buffer[:count].copy_(kept[block])
        graph.replay()
        return graph.outputs

    def _record(self, x: Tensor, kept: dict[int, Tensor]) -> RecordedGraph:
        replay, outputs = self.record(lambda: self.segment(x, kept))
        return RecordedGraph(x, kept, outputs, replay)


def _room(example: Tensor, size: int) -> Tensor:
    """Memory for `size` samples. Zeros, so that padding never holds what a later sum could overflow on."""
    return example.new_zeros((size, *example.shape[1:]))


class CudaRecorder:
    """Records with torch.cuda.graph; all graphs of one recorder share a pool of memory.

    A graph may write over what another one of its pool has put out, so every road has a recorder of its own.

    Args:
        device: the GPU; the current one when left out.
        warm_up: how often a function runs before it is recorded; 0 where it has run already.
    """

    def __init__(self, device: torch.device | None = None, warm_up: int = 3) -> None:
        self.device, self.warm_up = device, warm_up
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], T]) -> tuple[Replay, T]:
        """Warm up on a side stream, as recording demands, then record.

        Whatever is compiled, measured or loaded when a kernel first meets a size (torch.compile, the choice of tiles)
        happens while it warms up. Other threads may use the GPU meanwhile: a stream's source is read by one.
        """
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(self.warm_up):
                    function()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            recording = torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local")
            with collection_paused(), recording:
                outputs = function()
        return graph.replay, outputs


@contextmanager
def collection_paused() -> Iterator[None]:
    """No garbage is collected inside.

    Triton's kernels and CUDA graphs that are in a cycle of references are unloaded when the collector finds them. That
    may be at any line of Python, and while a stream is recorded CUDA does not allow it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
