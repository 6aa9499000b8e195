"""What jobs take on a GPU as CUDA graphs, side by side, so that neither launches nor clocks tell them apart."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from maqee.bench.timing import Run, take_turns
from maqee.runtime.graphs import CudaRecorder

REPLAYS = 10  # one after the other, so that the GPU does not wait for the host


class Job(NamedTuple):
    """What is timed.

    Attributes:
        run: does it; whatever tensors it needs are its own.
        copies: how often it is done in one graph. What takes microseconds is done several times.
    """

    run: Run
    copies: int = 1

    def run_all(self) -> list[Any]:
        """What all copies put out."""
        return [self.run() for _ in range(self.copies)]


Timer = Callable[[Sequence[Job]], list[float]]  # seconds that each takes once


class GraphTimer:
    """Median seconds of jobs on the current GPU.

    Everything that is measured, compiled or loaded when it is first needed is so before the first graph is recorded,
    and all graphs, with what they read and write, live until the last one has been timed.

    Args:
        repeats: rounds, in which the jobs take turns.
    """

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats

    def __call__(self, jobs: Sequence[Job]) -> list[float]:
        """Of each job, done once."""
        for job in jobs:
            job.run()
        torch.cuda.synchronize()
        recorded = [CudaRecorder()(job.run_all) for job in jobs]  # a pool each: no graph writes into another's memory
        times = take_turns([replay for replay, _ in recorded], _seconds_of_replay, self.repeats)
        return [statistics.median(seconds) / job.copies for job, seconds in zip(jobs, times, strict=True)]


def _seconds_of_replay(replay: Run) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPLAYS):
        replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / REPLAYS
