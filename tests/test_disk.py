"""Disks that do not take what is written: one sentence that names the file, nothing left behind."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from maqee import io
from maqee.disk import check_writable, check_writable_file
from maqee.errors import MaqeeError
from maqee.io import write_atomically, write_json, write_text
from maqee.tensors import write_tensors
from maqee.training.log import TrainLog

WRITERS: dict[str, Callable[[Path], None]] = {
    "text": lambda path: write_text(path, "x"),
    "json": lambda path: write_json(path, {"a": 1}),
    "tensors": lambda path: write_tensors(path, {"a": torch.zeros(2)}),
    "log": lambda path: TrainLog(path, "stage", 0).write(0, loss=1.0),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_parent_that_is_a_file(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MaqeeError, match=r"Cannot write .*file.* \((Not a directory|File exists)\): choose another"):
        write(tmp_path / "file" / "result")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["text", "json", "tensors"])
def test_a_folder_of_that_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "result").mkdir()
    with pytest.raises(MaqeeError, match="Is a directory"):
        WRITERS[name](tmp_path / "result")
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The device file that is always full stands in for one."""
    with pytest.raises(MaqeeError, match=r"No space left on device.*free some space"):
        write_atomically(tmp_path / "result", lambda temporary: no_room(b"x"))
    assert not list(tmp_path.iterdir())


def no_room(data: bytes) -> None:
    with open("/dev/full", "wb") as file:
        file.write(data)


def test_a_log_on_a_full_disk(tmp_path: Path) -> None:
    log = TrainLog(tmp_path, "stage", 0)
    log.path.symlink_to("/dev/full")
    with pytest.raises(MaqeeError, match=r"log.jsonl \(No space left on device\)"):
        log.write(0, loss=1.0)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
@pytest.mark.parametrize("place", [(tempfile, "mkstemp"), (os, "fsync"), (Path, "replace"), (io, "_write_bytes")])
def test_whatever_the_system_says_at_any_moment(
    number: int, place: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "result").write_text("old")

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*place, refuse)
    with pytest.raises(MaqeeError) as caught:
        write_text(tmp_path / "result", "new")
    assert str(tmp_path / "result") in str(caught.value)
    assert os.strerror(number) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["result"]
    assert (tmp_path / "result").read_text() == "old"


def test_other_mistakes_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "result", lambda temporary: print(1 / 0))
    assert not list(tmp_path.iterdir())


def test_checking_makes_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path)
    check_writable(tmp_path / "new" / "deeper")
    check_writable_file(tmp_path / "new" / "result.json")
    assert not list(tmp_path.iterdir())


def test_checking_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_writable(Path("runs/new"))
    check_writable_file(Path("result.json"))
    assert not list(tmp_path.iterdir())


def test_checking_finds_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper" / "still"):
        with pytest.raises(MaqeeError, match="file is a file, not a folder"):
            check_writable(folder)
    with pytest.raises(MaqeeError, match="it is a folder, not a file"):
        check_writable_file(tmp_path)
    check_writable_file(tmp_path / "file")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_checking_tries_to_write(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dir: Path) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(MaqeeError, match=os.strerror(number)):
        check_writable(tmp_path / "new")


def test_checking_notices_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: full)
        with pytest.raises(MaqeeError, match="No space left"):
            check_writable(tmp_path)


def test_tensorboard_on_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").touch()
    with pytest.raises(MaqeeError, match=r"Cannot write .*tensorboard \(File exists\)"):
        TrainLog(tmp_path, "stage", 0, tensorboard=True)
