"""Timing jobs side by side: they take turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from maqee.device import synchronize

Run = Callable[[], Any]
Clock = Callable[[Run], float]  # seconds that it takes


def time_together(jobs: Sequence[Run], device: torch.device, repeats: int, warm_up: int = 3) -> list[float]:
    """Median seconds of each job over so many rounds, after some to warm up."""
    return [statistics.median(seconds) for seconds in times_together(jobs, device, repeats, warm_up)]


def times_together(jobs: Sequence[Run], device: torch.device, repeats: int, warm_up: int = 3) -> list[list[float]]:
    """Seconds of each job in every round."""

    def seconds(job: Run) -> float:
        synchronize(device)
        start = time.perf_counter()
        job()
        synchronize(device)
        return time.perf_counter() - start

    return take_turns(jobs, seconds, repeats, warm_up)


def take_turns(jobs: Sequence[Run], clock: Clock, repeats: int, warm_up: int = 3) -> list[list[float]]:
    """What the clock says of each job in every round but the first few."""
    rounds = [[clock(job) for job in jobs] for _ in range(warm_up + repeats)]
    return [list(seconds) for seconds in zip(*rounds[warm_up:], strict=True)]
