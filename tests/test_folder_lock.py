"""One process at a time in a run folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maqee.compression import compress
from maqee.errors import MaqeeError
from maqee.folder_lock import LOCK, check_folder, hold_folder
from maqee.training import read_recipe, run_recipe
from maqee.training.shipped import find_recipe
from tests.compression.makers import digits, quick_options
from tests.helpers import invoke, save_digits_model

pytestmark = pytest.mark.process

HOLDER = """
import sys
from pathlib import Path
from maqee.folder_lock import hold_folder
with hold_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One that works in the folder until its input ends."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_the_second_process_is_told_who_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with another_process(folder) as process:
        sentence = f"run is in use by another maqee process \\(pid {process.pid}\\): wait for it or give another folder"
        with pytest.raises(MaqeeError, match=sentence), hold_folder(folder):
            pass
        with pytest.raises(MaqeeError, match=sentence):
            check_folder(folder)
        assert (folder / LOCK).exists()
        with hold_folder(tmp_path / "other"):
            pass
    with hold_folder(folder):
        pass


def test_a_killed_process_lets_go(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (tmp_path / LOCK).exists()
        check_folder(tmp_path)
        with hold_folder(tmp_path):
            assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), hold_folder(tmp_path / "run"):
        raise KeyError
    assert not list((tmp_path / "run").iterdir())


def test_a_lock_that_was_removed_meanwhile_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that open the same file, the first of which then removes it, must not both go on."""
    opened, original = [], os.open

    def open_then_lose(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = original(path, flags, mode)
        opened.append(descriptor)
        if len(opened) == 1:
            Path(path).unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    with hold_folder(tmp_path):
        assert len(opened) == 2
        assert (tmp_path / LOCK).exists()


def test_no_folder_no_lock() -> None:
    with hold_folder(None):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MaqeeError, match="Cannot write"), hold_folder(tmp_path / "file" / "run"):
        pass


def test_training_keeps_others_out(tmp_path: Path) -> None:
    recipe = read_recipe(find_recipe("digits"))
    with another_process(tmp_path / "run"), pytest.raises(MaqeeError, match="in use by another"):
        run_recipe(recipe, tmp_path / "run", device="cpu")
    assert not list((tmp_path / "run").iterdir())


def test_compression_keeps_others_out(tmp_path: Path) -> None:
    from maqee.exits import EarlyExitModel

    model, out = EarlyExitModel.load(save_digits_model(tmp_path / "model")), tmp_path / "out"
    options = quick_options()
    with another_process(out), pytest.raises(MaqeeError, match="in use by another"):
        compress(model, digits("calibration"), options=options, out=out, device="cpu", show=False)
    assert not list(out.iterdir())


def test_the_command_says_it_in_one_sentence(tmp_path: Path) -> None:
    with another_process(tmp_path / "run"):
        assert invoke("train", "digits", "--out", str(tmp_path / "run"), "--device", "cpu").exit_code == 2
