"""The queue: nothing before what it needs, failures take only their dependents along, lost work comes back."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from maqee.tables.cases import Case
from maqee.tables.work import PREPARED, Work
from maqee.tables.work_queue import ATTEMPTS, WorkQueue

NO_CASE = cast(Case, None)


def works(**needs: tuple[str, ...]) -> list[Work]:
    return [Work(name, NO_CASE, needed) for name, needed in needs.items()]


def test_in_order(tmp_path: Path) -> None:
    queue = WorkQueue(works(a=(), b=("a",), c=()), tmp_path)
    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    assert (first.folder, second.folder, queue.take()) == ("a", "c", None)
    queue.finish(first, computed=True)
    third = queue.take()
    assert third is not None
    queue.finish(second, computed=False)
    queue.finish(third, computed=True)
    assert (queue.computed, queue.take(), queue.failures) == (["a", "b"], None, {})


def test_what_is_finished_is_not_handed_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / PREPARED).write_text("{}")
    queue = WorkQueue(works(a=(), b=("a",)), tmp_path)
    work = queue.take()
    assert work is not None
    assert (work.folder, queue.take()) == ("b", None)


def test_failures(tmp_path: Path) -> None:
    queue = WorkQueue(works(a=(), b=("a",), c=("b",), d=()), tmp_path)
    first = queue.take()
    assert first is not None
    queue.fail(first, "no luck")
    assert {name: failure.reason for name, failure in queue.failures.items()} == {
        "a": "no luck",
        "b": "It needs a, which failed.",
        "c": "It needs b, which failed.",
    }
    last = queue.take()
    assert last is not None
    assert last.folder == "d"


def test_lost_work_comes_back_but_not_for_ever(tmp_path: Path) -> None:
    queue = WorkQueue(works(a=(), b=()), tmp_path)
    for attempt in range(1, ATTEMPTS + 1):
        work = queue.take()
        assert work is not None
        assert work.folder == "a", attempt
        queue.lose(work)
    assert "died 3 times" in queue.failures["a"].reason


def test_work_that_was_finished_before_its_worker_died(tmp_path: Path) -> None:
    queue = WorkQueue(works(a=()), tmp_path)
    work = queue.take()
    assert work is not None
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / PREPARED).write_text("{}")
    queue.lose(work)
    assert (queue.computed, queue.take()) == (["a"], None)
