"""Progress bars with the time left, on a terminal; silence elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

console = Console(stderr=True)


class Steps:
    """A bar on a terminal; a line every half minute in a log file."""

    def __init__(self, name: str, total: int, bar: Progress | None, task: TaskID | None) -> None:
        self.name, self.total, self.bar, self.task = name, total, bar, task
        self.started = self.printed = time.monotonic()
        self.first: int | None = None

    def update(self, done: int, note: str = "") -> None:
        """Say how many steps are done."""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, note=note)
            return
        now = time.monotonic()
        self.first = done if self.first is None else self.first
        if now - self.printed < 30 and done < self.total:
            return
        self.printed = now
        rate = (now - self.started) / max(1, done - self.first)
        left = f", {rate * (self.total - done):.0f} s left" if done < self.total else ""
        console.print(f"{self.name} {done}/{self.total} {note}{left}", highlight=False, soft_wrap=True)


@contextmanager
def steps(name: str, total: int, enabled: bool = True) -> Iterator[Steps]:
    """Show the progress of `total` steps of a long job."""
    if not enabled or not console.is_terminal:
        yield Steps(name, total, None, None) if enabled else _Silent(name, total, None, None)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Remaining(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with Progress(*columns, console=console) as bar:
        yield Steps(name, total, bar, bar.add_task(name, total=total, note=""))


class _Silent(Steps):
    def update(self, done: int, note: str = "") -> None:
        """Say nothing."""
