"""Timing jobs side by side: they take turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from maqee.device import synchronize


def time_together(
    jobs: Sequence[Callable[[], Any]], device: torch.device, repeats: int, warm_up: int = 3
) -> list[float]:
    """Median seconds of each job over so many rounds, after some to warm up."""
    return [statistics.median(seconds) for seconds in times_together(jobs, device, repeats, warm_up)]


def times_together(
    jobs: Sequence[Callable[[], Any]], device: torch.device, repeats: int, warm_up: int = 3
) -> list[list[float]]:
    """Seconds of each job in every round."""
    times: list[list[float]] = [[] for _ in jobs]
    for turn in range(repeats + warm_up):
        for job, seconds in zip(jobs, times, strict=True):
            synchronize(device)
            start = time.perf_counter()
            job()
            synchronize(device)
            if turn >= warm_up:
                seconds.append(time.perf_counter() - start)
    return times
