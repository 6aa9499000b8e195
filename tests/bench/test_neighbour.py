"""The demo beside busy programs: what is started ends, and the ratio is that of the two times."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from maqee.bench import neighbour
from maqee.bench.neighbour import BUSY, DemoTiming, bench_neighbour, busy_programs
from maqee.errors import MaqeeError
from tests.helpers import invoke

pytestmark = pytest.mark.process


def test_busy_programs_are_busy_until_the_end() -> None:
    with busy_programs(2) as programs:
        assert [program.poll() for program in programs] == [None, None]
    assert all(program.returncode is not None for program in programs)


def test_a_busy_program_does_not_outlive_its_parent() -> None:
    """The parent starts one, says its number, and is gone."""
    code = (
        f"import os, subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {BUSY!r}, str(os.getpid())]).pid)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    running, deadline = Path("/proc") / done.stdout.strip(), time.monotonic() + 20
    while running.exists() and "State:\tZ" not in (running / "status").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert time.monotonic() < deadline


def test_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    times = iter((20.0, 50.0))

    def time_demo(overrides: Any) -> DemoTiming:
        seen.append(list(overrides))
        return DemoTiming(next(times), (0.1, 0.2, 0.3))

    monkeypatch.setattr(neighbour, "_time_demo", time_demo)
    out = tmp_path / "figures.json"
    result = invoke("bench", "neighbour", "stages.0.epochs=1", "--neighbours", "1", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "20.0 s alone" in result.output
    assert "2.50 times as long" in result.output
    figures = json.loads(out.read_text())
    assert (figures["ratio"], figures["neighbours"]) == (2.5, 1)
    assert seen == [["stages.0.epochs=1"]] * 2


def test_the_demos_own_complaint_is_passed_on() -> None:
    with pytest.raises(MaqeeError, match=r"The demo failed: .*unknown key 'epoch'"):
        bench_neighbour(["stages.0.epoch=1"], neighbours=1)
    with pytest.raises(MaqeeError, match="at least 1"):
        bench_neighbour(neighbours=0)
