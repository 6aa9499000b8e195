"""One process at a time in a run folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maqee.disk import check_writable, explain_write_errors
from maqee.errors import MaqeeError

LOCK = ".lock"


@contextmanager
def hold_folder(folder: Path | None) -> Iterator[None]:
    """Keep other maqee processes out of a folder, which is made if need be, for as long as this one works in it.

    The system lets go of the lock when the process ends, however it ends. The file is removed afterwards, so that a
    finished folder holds results only. Without a folder there is nothing to hold; on Windows nobody is kept out.
    """
    if folder is None or sys.platform == "win32":
        yield
        return
    path = folder / LOCK
    with explain_write_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a disk that became read-only meanwhile
            path.unlink(missing_ok=True)
        os.close(descriptor)


def check_folder(folder: Path) -> None:
    """Before long work: complain if the folder cannot be written or another process works in it; it is not made."""
    check_writable(folder)
    if (folder / LOCK).exists():
        with hold_folder(folder):
            pass


def _lock(path: Path) -> int:
    """Open and lock the file, and write this process's number into it."""
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            who = f" (pid {holder})" if holder else ""
            raise MaqeeError(
                f"{path.parent} is in use by another maqee process{who}: wait for it or give another folder."
            ) from error
        except OSError:  # some network disks know no locks: better no protection than no work
            return descriptor
        if _is_still(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            return descriptor
        os.close(descriptor)  # the one before removed it between our opening and locking


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the name still leads to the file that was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
