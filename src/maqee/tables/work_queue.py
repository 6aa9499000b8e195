"""What is to be done, what can be done now, and what has failed: the same for every place that work is done in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from maqee.tables.work import Work

ATTEMPTS = 3  # a worker may be killed for reasons that are not the work's, but not for ever


@dataclass(frozen=True)
class Failure:
    """Work that could not be done.

    Attributes:
        work: what it was.
        reason: in one sentence.
    """

    work: Work
    reason: str


@dataclass
class WorkQueue:
    """Work in order; each piece is handed out when all that it needs is finished.

    Args:
        works: all of it, needed ones before those that need them.
        root: the folder of all runs; what is finished there is not handed out.
        on_change: called with every piece that is finished, or was already.
    """

    works: Iterable[Work]
    root: Path
    on_change: Callable[[WorkQueue, Work], None] | None = None
    waiting: dict[str, Work] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    computed: list[str] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for work in self.works:
            if work.finished(self.root):
                self.finished.add(work.folder)
            else:
                self.waiting[work.folder] = work

    @property
    def total(self) -> int:
        """Pieces that were not finished at the beginning and can be counted as steps."""
        return len(self.waiting) + len(self.computed) + len(self.failures)

    def take(self) -> Work | None:
        """A piece that can be done now; None if everything that is left waits for what is being done."""
        for folder, work in self.waiting.items():
            if self.finished.issuperset(work.needs):
                return self.waiting.pop(folder)
        return None

    def finish(self, work: Work, computed: bool) -> None:
        """A piece is done: by this run, or (another process was quicker) before."""
        self.finished.add(work.folder)
        if computed:
            self.computed.append(work.folder)
        if self.on_change is not None:
            self.on_change(self, work)

    def fail(self, work: Work, reason: str) -> None:
        """A piece failed, and so does everything that needs it."""
        self.failures[work.folder] = Failure(work, reason)
        for other in [other for other in self.waiting.values() if work.folder in other.needs]:
            if self.waiting.pop(other.folder, None) is not None:
                self.fail(other, f"It needs {work.folder}, which failed.")
        if self.on_change is not None:
            self.on_change(self, work)

    def lose(self, work: Work) -> None:
        """The worker of a piece died; it is taken up again, unless that has happened too often."""
        self.lost[work.folder] = self.lost.get(work.folder, 0) + 1
        if work.finished(self.root):
            self.finish(work, computed=True)
        elif self.lost[work.folder] >= ATTEMPTS:
            self.fail(work, f"Its process died {ATTEMPTS} times: there may be too little memory for so many at once.")
        else:
            self.waiting = {work.folder: work, **self.waiting}
