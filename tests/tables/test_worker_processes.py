"""The end of worker processes: idle ones go by themselves, busy ones are not waited for and do not stay alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
    busy.work = work  # which it never got; asleep, it cannot leave by itself
    os.kill(busy.process.pid or 0, signal.SIGSTOP)
    _end([busy, idle])
    assert idle.process.exitcode == 0
    assert busy.process.exitcode == -signal.SIGKILL


ORPHAN = """
import multiprocessing, threading, time
from maqee.tables.worker_processes import leave_with_parent

def work():
    threading.Thread(target=leave_with_parent, daemon=True).start()
    print("at work", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=work).start()
    time.sleep(600)
"""


def test_busy_workers_leave_with_their_parent(tmp_path: Path) -> None:
    (tmp_path / "orphan.py").write_text(ORPHAN)
    with subprocess.Popen([sys.executable, str(tmp_path / "orphan.py")], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "at work\n"
        parent.kill()
        output, _ = parent.communicate(timeout=60)  # which ends when nobody holds the pipe any more
        assert output == ""
