"""The queue: nothing before what it needs, failures take only their dependents along, lost work comes back."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch

from maqee.errors import MaqeeError
from maqee.tables.cases import Case
from maqee.tables.in_process import describe
from maqee.tables.work import PREPARED, ROW, Work
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


def test_the_longest_way_first(tmp_path: Path) -> None:
    """Short ones are left for the end, where workers would wait for a long one; not those that a long one waits for."""
    efforts: dict[str, tuple[float, tuple[str, ...]]] = {
        "short": (1, ()),
        "long": (5, ()),
        "before": (1, ()),
        "after": (6, ("before",)),
    }
    every = [Work(name, NO_CASE, needs, effort=effort) for name, (effort, needs) in efforts.items()]
    queue, order = WorkQueue(every, tmp_path), []
    while (work := queue.take()) is not None:
        order.append(work.folder)
        queue.finish(work, computed=True)
    assert order == ["before", "after", "long", "short"]


def test_figures_of_what_is_made_before_the_next_model(tmp_path: Path) -> None:
    every = [
        Work("model", NO_CASE, effort=9),
        Work("pass", NO_CASE, ("model",), "pass", effort=2),
        Work("other", NO_CASE, effort=8),
        Work("target", NO_CASE, effort=1),
        Work("row", NO_CASE, ("pass", "target"), "row", record="pass", effort=0.1),
    ]
    queue, order = WorkQueue(every, tmp_path), []
    while (work := queue.take()) is not None:
        order.append(work.folder)
        queue.finish(work, computed=True)
    assert order == ["model", "pass", "target", "row", "other"]


def test_figures_of_a_row_that_runs_its_own_pass_before_the_next_model(tmp_path: Path) -> None:
    every = [
        Work("model", NO_CASE, effort=9),
        Work("other", NO_CASE, effort=8),
        Work("target", NO_CASE, effort=1),
        Work("row", NO_CASE, ("model", "target"), "row", effort=5),
    ]
    queue, order = WorkQueue(every, tmp_path), []
    while (work := queue.take()) is not None:
        order.append(work.folder)
        queue.finish(work, computed=True)
    assert order == ["model", "target", "row", "other"]


def test_searches_of_one_model_stay_with_a_process(tmp_path: Path) -> None:
    every = [
        Work("long", NO_CASE, effort=9),
        Work("one", NO_CASE, effort=5, fitted="x"),
        Work("other", NO_CASE, effort=3, fitted="y"),
        Work("two", NO_CASE, effort=1, fitted="x"),
    ]
    queue = WorkQueue(every, tmp_path)
    order = [queue.take(last) for last in (every[1], every[1], every[1], every[0])]
    assert order == [every[1], every[3], every[0], every[2]]


def test_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / ROW).write_text("{}")
    every = [
        Work("earlier", NO_CASE, kind="row"),
        Work("model", NO_CASE, effort=3),
        Work("row", NO_CASE, ("model",), kind="row"),
        Work("other", NO_CASE, kind="row"),
    ]
    queue = WorkQueue(every, tmp_path)
    assert (queue.percent, queue.runs_words) == (0, "1 of 3 runs done")
    queue.finish(every[1], computed=True)
    assert (queue.percent, queue.runs_words) == (60, "1 of 3 runs done")
    queue.fail(every[3], "no luck")
    queue.finish(every[2], computed=True)
    assert (queue.percent, queue.runs_words) == (100, "2 of 3 runs done, 1 failed")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MaqeeError("data: it is empty."), "data: it is empty."),
        (ValueError("no\n luck"), "ValueError: no luck"),
        (
            torch.OutOfMemoryError("Tried to allocate"),
            "The GPU ran out of memory beside the other runs: start again with",
        ),
    ],
)
def test_reasons(error: Exception, words: str) -> None:
    assert describe(error).startswith(words)
