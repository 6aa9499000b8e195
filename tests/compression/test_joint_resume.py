"""A search for pairs of widths that is killed ends with the same bytes as one that is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maqee.apq import Plan

pytestmark = pytest.mark.trains

ROOT = Path(__file__).parents[2]
RESULTS = ("plan.json", "model.safetensors", "trace.safetensors", "search.json")


def start(model: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.compression.joint_driver", str(model), str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_steps(process: subprocess.Popen[bytes], state: Path, steps: int) -> None:
    """Until the search has written so many steps, or has ended. Files are replaced as a whole, so reading is safe."""
    while process.poll() is None:
        if state.exists() and len(json.loads(state.read_text())["history"]) >= steps:
            return
        time.sleep(0.001)


@pytest.mark.stops
@pytest.mark.process
def test_killed_in_the_ladder_and_among_moves(model_folder: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "killed"
    unbroken = start(model_folder, whole)
    _, errors = unbroken.communicate(timeout=240)
    assert unbroken.returncode == 0, errors.decode()[-2000:]
    kinds = [step.kind for step in Plan.load(whole / "plan.json").history]
    assert {"start", "exact", "move", "last"} == set(kinds)
    killed = 0
    for steps in (2, 5, len(kinds) - 2):
        process = start(model_folder, out)
        wait_for_steps(process, out / "search.json", steps)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed >= 2
    process = start(model_folder, out)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()[-2000:]
    frontier = [path.relative_to(whole) for path in sorted((whole / "frontier").glob("*/plan.json"))]
    assert len(frontier) > 2
    names: list[str | Path] = [*RESULTS, *frontier]
    for name in names:
        assert (whole / name).read_bytes() == (out / name).read_bytes(), name
