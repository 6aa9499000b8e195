"""How much longer the demo takes beside busy programs: a machine is seldom one's own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from maqee.bench.result import BenchResult
from maqee.environment import describe_environment
from maqee.errors import MaqeeError

AIM = 3.0  # times as long as on an idle machine
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"  # ends when its parent does


@dataclass(frozen=True)
class DemoTiming:
    """Seconds of one demo, with the start of Python, and the load averages before it."""

    seconds: float
    load_before: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class NeighbourTiming(BenchResult):
    """The demo alone and beside busy programs.

    Attributes:
        overrides: of the recipe for digits.
        cores: of the machine.
        neighbours: number of busy programs.
        alone: the demo on the machine as it is.
        beside: the demo beside them.
        ratio: how many times as long it takes.
        aim: the most that it should.
    """

    overrides: tuple[str, ...]
    cores: int
    neighbours: int
    alone: DemoTiming
    beside: DemoTiming
    ratio: float
    aim: float


def bench_neighbour(overrides: Sequence[str] = (), *, neighbours: int | None = None) -> NeighbourTiming:
    """Run the demo alone and then beside busy programs, each time in a process of its own.

    Threads are used and wait as for any command; OMP_NUM_THREADS and OMP_WAIT_POLICY say otherwise. What else runs on
    the machine is seen in the load average before each run.

    Args:
        overrides: of the recipe for digits, to train less.
        neighbours: busy programs; when left out, so many that one core is left.
    """
    cores = os.cpu_count() or 1
    count = max(1, cores - 1) if neighbours is None else neighbours
    if count < 1:
        raise MaqeeError(f"neighbours: {count} must be at least 1.")
    alone = _time_demo(overrides)
    with busy_programs(count):
        beside = _time_demo(overrides)
    return NeighbourTiming(
        overrides=tuple(overrides),
        cores=cores,
        neighbours=count,
        alone=alone,
        beside=beside,
        ratio=round(beside.seconds / alone.seconds, 3),
        aim=AIM,
        environment=describe_environment(),
    )


@contextmanager
def busy_programs(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many processes that do nothing, as fast as they can."""
    with ExitStack() as stack:
        programs = []
        for _ in range(count):
            program = subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())])
            stack.callback(program.wait)
            stack.callback(program.kill)
            programs.append(program)
        yield programs


def _time_demo(overrides: Sequence[str]) -> DemoTiming:
    """Seconds of one demo, with the start of Python, and the load average of the minute before."""
    load = tuple(round(value, 2) for value in os.getloadavg())
    with tempfile.TemporaryDirectory(prefix="maqee-neighbour-") as folder:
        command = [sys.executable, "-m", "maqee", "demo", "--out", str(Path(folder) / "demo"), *overrides]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
    if done.returncode:
        raise MaqeeError(f"The demo failed: {done.stderr.strip()[-500:]}")
    return DemoTiming(round(seconds, 2), load)
