"""Do one piece of work: in its own folder, which is locked meanwhile, and only if nobody has done it yet."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from maqee.folder_lock import hold_folder
from maqee.freed_memory import give_back, keep_freed
from maqee.io import write_json, write_text
from maqee.tables.work import ERROR, TIMES, Place, Work


def do_work(work: Work, place: Place) -> bool:
    """Make a model, let it pass over the test images or measure a row; False where that was done before.

    What this leaves behind is the same wherever it runs. Seconds are kept apart, because they never are.
    """
    from maqee.tables.measure_row import measure_row  # late: workers import torch when there is something to do
    from maqee.tables.prepare import prepare
    from maqee.tables.tested import record_test

    keep_freed()
    folder, began = place.root / work.folder, time.monotonic()
    with hold_folder(folder), each_said_once():
        if work.finished(place.root):
            return False
        try:
            if work.row is not None:
                measure_row(work.case, work.row, work.record, folder, place)
            elif work.kind == "pass":
                record_test(work.case, folder, place)
            else:
                prepare(work.case, folder, place)
        except Exception:
            write_text(folder / ERROR, traceback.format_exc())  # the report at the end has a line for it, not a page
            raise
        finally:
            give_back()
        (folder / ERROR).unlink(missing_ok=True)
        write_json(folder / TIMES, {"seconds": round(time.monotonic() - began, 3)})
    return True


class _Once(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self.said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        new = record.getMessage() not in self.said
        self.said.add(record.getMessage())
        return new


_ONCE = _Once()


@contextmanager
def each_said_once() -> Iterator[None]:
    """Let a process remark on the data once: all runs of a table have the same, and mostly the same model."""
    remarks = [logging.getLogger(f"maqee.data.{name}") for name in ("classes", "seen")]
    for logger in remarks:
        logger.addFilter(_ONCE)
    try:
        yield
    finally:
        for logger in remarks:
            logger.removeFilter(_ONCE)
