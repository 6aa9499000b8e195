"""The end of worker processes: idle ones go by themselves, busy ones are not waited for."""

from __future__ import annotations

import signal
from pathlib import Path

from maqee.tables.grid import make_grid
from maqee.tables.table_file import read_table
from maqee.tables.work import Place
from maqee.tables.worker_processes import _end, _start
from tests.tables.makers import write_table


def test_idle_workers_leave_and_busy_ones_are_stopped(tmp_path: Path) -> None:
    place = Place(tmp_path / "runs", None, "cpu", "")
    work = next(iter(make_grid(read_table(write_table(tmp_path)))))
    busy, idle = _start(place), _start(place)
    busy.work = work  # which it never got: all that counts is that it would be waited for
    _end([busy, idle])
    assert idle.process.exitcode == 0
    assert busy.process.exitcode == -signal.SIGKILL
