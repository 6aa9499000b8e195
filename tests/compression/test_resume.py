"""A compression that is stopped, politely or not, ends with the same bytes as one that is not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from maqee.apq import Plan, SearchOptions
from maqee.compression import compress
from maqee.compression import job as run_module
from maqee.compression.recovery import RecoveryStage
from maqee.exits import EarlyExitModel
from maqee.runtime import load
from tests.compression.makers import digits, quick_options

pytestmark = pytest.mark.trains

ROOT = Path(__file__).parents[2]
RESULTS = ("plan.json", "model.safetensors", "trace.safetensors", "search.json")


def start(model: Path, out: Path, mode: str, threads: int = 1) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.compression.driver", str(model), str(out), mode, str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_files(process: subprocess.Popen[bytes], out: Path, count: int) -> None:
    """Until the run has written `count` times, or has ended."""
    seen: set[tuple[str, int]] = set()
    while process.poll() is None and len(seen) < count:
        for path in out.glob("**/*"):
            try:
                if path.is_file() and not path.name.startswith("."):
                    seen.add((path.name, path.stat().st_mtime_ns))
            except FileNotFoundError:
                continue
        time.sleep(0.001)


def same_files(one: Path, other: Path, names: tuple[str, ...] = RESULTS) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.stops
@pytest.mark.process
@pytest.mark.parametrize(("mode", "most"), [("plain", 3), ("recovery", 25)])
def test_killed_at_random_moments(model_folder: Path, tmp_path: Path, mode: str, most: int) -> None:
    whole, out = tmp_path / "whole", tmp_path / "killed"
    unbroken = start(model_folder, whole, mode)  # with as many threads: what is added up in which order depends on that
    assert unbroken.wait(timeout=240) == 0
    kinds = [step.kind for step in Plan.load(whole / "plan.json").history]
    assert "swap" in kinds
    assert ("recovery" in kinds) == (mode == "recovery")
    moments, killed = random.Random(7), 0
    for number in range(2):
        process = start(model_folder, out, mode)
        left = len(list(out.glob("**/*")))
        wait_for_files(process, out, left + moments.randint(1, most) + number)
        time.sleep(0.02 * moments.random())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed
    process = start(model_folder, out, mode)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()[-2000:]
    assert same_files(whole, out)
    if mode == "recovery":
        assert same_files(whole / "unrecovered", out / "unrecovered", RESULTS[:3])


@pytest.mark.process
def test_two_threads_end_alike(model_folder: Path, tmp_path: Path) -> None:
    """Two processes with two threads each, side by side, with the method that adds up most.

    With another number of threads sums may be added up in another order, and nothing is promised.
    """
    processes = [start(model_folder, tmp_path / name, "erq", threads=2) for name in ("one", "two")]
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()[-2000:]
    assert same_files(tmp_path / "one", tmp_path / "two")


def options_with(recovery: bool) -> dict[str, Any]:
    return {
        "search_options": SearchOptions(
            bits="weights", max_swaps=3, recovery_steps=1 if recovery else 0, swap="literal", objective="paper"
        ),
        "options": quick_options(),
        "device": "cpu",
        "show": False,
    }


def interrupt_when(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int) -> None:
    """Ctrl-C during a certain call of a function."""
    original, calls = getattr(target, name), 0

    def with_interrupt(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        result = original(*arguments)
        if calls == call:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(target, name, with_interrupt)


def check_usable(out: Path, model: EarlyExitModel) -> None:
    compressed = load(out)
    images = torch.randn(3, 1, 16, 16)
    assert compressed(images).shape == (3, 10)
    assert compressed.plan.exit_blocks == model.positions


@pytest.mark.stops
@pytest.mark.parametrize(
    ("recovery", "place", "call", "steps"),
    [
        (False, (run_module, "write_text"), 2, 2),
        (True, (run_module, "write_text"), 2, 2),
        (True, (RecoveryStage, "forward"), 2, 1),  # while the first swap trains
    ],
    ids=["between steps", "between steps that train", "while a swap trains"],
)
def test_ctrl_c_leaves_the_best_so_far_and_goes_on(
    model: EarlyExitModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recovery: bool,
    place: tuple[Any, str],
    call: int,
    steps: int,
) -> None:
    arguments = (model, digits("calibration"), digits("train"))
    compress(*arguments, out=tmp_path / "whole", **options_with(recovery))
    with monkeypatch.context() as patch:
        interrupt_when(patch, *place, call)
        early = compress(*arguments, out=tmp_path / "out", **options_with(recovery))
    assert not early.finished
    assert len(early.plan.history) == steps
    check_usable(tmp_path / "out", model)
    assert compress(*arguments, out=tmp_path / "out", **options_with(recovery)).finished
    assert same_files(tmp_path / "whole", tmp_path / "out")


@pytest.mark.stops
def test_ctrl_c_while_the_end_trains(model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there before training is in a folder of its own by then."""
    arguments = (model, digits("calibration"), digits("train"))
    more = {**options_with(False), "options": quick_options(recovery_steps=5)}
    compress(*arguments, out=tmp_path / "whole", **more)
    with monkeypatch.context() as patch:
        interrupt_when(patch, RecoveryStage, "forward", 3)
        with pytest.raises(KeyboardInterrupt):
            compress(*arguments, out=tmp_path / "out", **more)
    check_usable(tmp_path / "out" / "unrecovered", model)
    assert list((tmp_path / "out" / "training").glob("*.checkpoint.safetensors"))
    compress(*arguments, out=tmp_path / "out", **more)
    assert same_files(tmp_path / "whole", tmp_path / "out")
