"""What is to be done, what can be done now, and what has failed: the same for every place that work is done in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


def still_needed(works: Sequence[Work], root: Path) -> list[Work]:
    """Rows, and models and passes that rows without figures need: of a finished row nothing else has to be there."""
    needed: set[str] = set()
    for work in reversed(works):
        if (work.kind == "row" or work.folder in needed) and not work.finished(root):
            needed.update(work.needs)
    return [work for work in works if work.kind == "row" or work.folder in needed]


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
    ahead: dict[str, float] = field(default_factory=dict)  # effort of a piece and of all that needs it, one by one

    def __post_init__(self) -> None:
        every = list(self.works)
        for work in every:
            if work.finished(self.root):
                self.finished.add(work.folder)
            else:
                self.waiting[work.folder] = work
        self.runs = [work.folder for work in every if work.kind == "row"]
        self.left = self.effort = sum(work.effort for work in self.waiting.values())
        for work in reversed(every):
            self.ahead[work.folder] = work.effort + self.ahead.get(work.folder, 0.0)
            for needed in work.needs:
                self.ahead[needed] = max(self.ahead.get(needed, 0.0), self.ahead[work.folder])

    @property
    def percent(self) -> int:
        """How much is done, by effort, of what was not finished at the beginning."""
        return 100 if self.left < 1e-6 else int(100 * (1 - self.left / self.effort))

    @property
    def runs_words(self) -> str:
        """How many runs of rows are finished, by whomever and whenever, of all that are wanted."""
        done = sum(folder in self.finished for folder in self.runs)
        failed = sum(folder in self.failures for folder in self.runs)
        return f"{done} of {len(self.runs)} runs done" + (f", {failed} failed" if failed else "")

    def take(self, last: Work | None = None) -> Work | None:
        """A piece that can be done now; None if everything that is left waits for what is being done.

        What a finished model is for comes first: rows and test passes are short, and whoever stops the work wants
        figures. So does a model that such rows wait for besides, as the one that sets the target. Then a search of the
        model that the asking process has searched last. Then the piece with the longest way still to go behind it, so
        that nobody waits for a long one at the end; of equals the first.

        Args:
            last: what the process has done before.
        """
        ready = [work for work in self.waiting.values() if self.finished.issuperset(work.needs)]
        short = [work for work in ready if work.kind != "model"]
        rows = [work for work in self.waiting.values() if work.kind == "row"]
        stuck = {need for row in rows if self.finished.issuperset(row.needs[:1]) for need in row.needs}
        awaited = [work for work in ready if work.folder in stuck]
        alike = [work for work in ready if last is not None and last.fitted == work.fitted != ""]
        if not ready:
            return None
        return self.waiting.pop(
            max(short or awaited or alike or ready, key=lambda work: self.ahead[work.folder]).folder
        )

    def finish(self, work: Work, computed: bool) -> None:
        """A piece is done: by this run, or (another process was quicker) before."""
        self.finished.add(work.folder)
        self.left -= work.effort
        if computed:
            self.computed.append(work.folder)
        if self.on_change is not None:
            self.on_change(self, work)

    def fail(self, work: Work, reason: str) -> None:
        """A piece failed, and so does everything that needs it."""
        self.failures[work.folder] = Failure(work, reason)
        self.left -= work.effort
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
