"""Progress with the time left: bars on a terminal, lines elsewhere. Something is shown from the first moment on."""

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
        self.printed = time.monotonic()
        self.first: tuple[int, float] | None = (
            None  # steps done and time at the first report; a resumed job began later
        )

    def update(self, done: int, note: str = "") -> None:
        """Say how many steps are done."""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, note=note)
            return
        now = time.monotonic()
        self.first = self.first or (done, now)
        if now - self.printed < 30 and done < self.total:
            return
        self.printed = now
        before, then = self.first
        seconds = (now - then) / (done - before) * (self.total - done) if done > before else 0.0
        left = f"{seconds:.0f} s left" if seconds else ""
        said = ", ".join(text for text in (note, left) if text)
        _print_line(f"{self.name} {done}/{self.total} {said}".rstrip())


@contextmanager
def steps(name: str, total: int, enabled: bool = True) -> Iterator[Steps]:
    """Show the progress of `total` steps of a long job."""
    if not enabled:
        yield _Silent(name, total, None, None)
        return
    if not console.is_terminal:
        _print_line(f"{name} 0/{total}")
        yield Steps(name, total, None, None)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Remaining(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    with Progress(*columns, console=console) as bar:
        yield Steps(name, total, bar, bar.add_task(name, total=total, note=""))


@contextmanager
def phase(name: str, enabled: bool = True) -> Iterator[None]:
    """Say what is being done where no steps can be counted: a spinner on a terminal, one line elsewhere."""
    if not enabled:
        yield
    elif console.is_terminal:
        with console.status(name):
            yield
    else:
        _print_line(name)
        yield


def _print_line(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


class _Silent(Steps):
    def update(self, done: int, note: str = "") -> None:
        """Say nothing."""
