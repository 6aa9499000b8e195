"""Disks that are full, read-only or not there: one sentence each, and before long work, not after it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maqee.errors import MaqeeError

BLOCK = bytes(4096)  # the least that takes room on most disks


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn what the system says when `path` cannot be written into the user's error, named."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error.strerror or str(error)) from error


def cannot_write(path: Path, reason: str) -> MaqeeError:
    """The error to raise."""
    return MaqeeError(f"Cannot write {path} ({reason}): choose another folder or free some space.")


def check_writable(folder: Path) -> None:
    """Complain if nothing could be written into a folder; it need not exist, and is not made.

    A little is written where the folder is, or where it would be made, and nothing is left behind.
    """
    place = folder.absolute()
    with explain_write_errors(folder):
        while not os.path.lexists(place):
            place = place.parent
        if not place.is_dir():
            raise cannot_write(folder, f"{place} is a file, not a folder")
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(BLOCK)


def check_writable_file(path: Path) -> None:
    """The same for a file that will be written or replaced."""
    if path.is_dir():
        raise cannot_write(path, "it is a folder, not a file")
    check_writable(path.parent)
