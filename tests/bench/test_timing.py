"""Jobs take turns."""

from __future__ import annotations

from functools import partial

import torch

from maqee.bench.timing import Run, take_turns, time_together


def test_turns_are_taken_and_the_first_ones_do_not_count() -> None:
    done: list[str] = []

    def clock(job: Run) -> float:
        job()
        return float(len(done))

    times = take_turns([partial(done.append, name) for name in "ab"], clock, repeats=2, warm_up=1)
    assert "".join(done) == "ababab"
    assert times == [[3, 5], [4, 6]]


def test_every_job_has_a_time() -> None:
    runs: list[int] = []
    seconds = time_together([partial(runs.append, 0), partial(runs.append, 1)], torch.device("cpu"), 2, warm_up=0)
    assert runs == [0, 1, 0, 1]
    assert min(seconds) >= 0
    assert time_together([], torch.device("cpu"), 2) == []
