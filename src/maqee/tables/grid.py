"""From the file of a table to pieces of work: models first, their test passes, then the rows that look things up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from maqee.errors import suggest
from maqee.runs import task_of
from maqee.tables.cases import Case, case_of, named
from maqee.tables.table_file import Row, TableFile
from maqee.tables.work import MODELS, PASSES, Measuring, Work
from maqee.tasks import tasks

_TEST_PASS, _LOOK_UP = 5.0, 0.1  # efforts, beside those of models


def make_grid(table: TableFile, only: Collection[str] = (), seeds: int | None = None) -> list[Work]:
    """Every piece of work in an order in which it can be done; each once, however many rows need it.

    Args:
        table: what is wanted.
        only: names of the rows to do; all when empty.
        seeds: seeds of every row, in place of the table's.
    """
    for name in only:
        if name not in table.rows:
            raise suggest(name, list(table.rows), "row")
    found: dict[str, Work] = {}
    for name, row in table.rows.items():
        if not only or name in only:
            for seed in table.seeds_of(row, seeds):
                _add_run(found, table, name, row, seed)
    return list(found.values())


def row_works(grid: list[Work], name: str) -> list[Work]:
    """The runs of a row, by seed."""
    return [work for work in grid if work.row is not None and work.row.name == name]


def _add_run(found: dict[str, Work], table: TableFile, name: str, row: Row, seed: int) -> Work:
    case = case_of(table, row, name, seed)
    record = _add_pass(found, case)
    needs = [_add_model(found, case), *([record] if record else [])]
    chosen: float | str = table.threshold if row.chosen == "default" else row.chosen
    source, target = None, table.target if not isinstance(table.target, str) else None
    if row.thresholds_of is not None:
        source = _add_run(found, table, row.thresholds_of, table.rows[row.thresholds_of], seed).folder
        needs.append(source)
    target_folder = None
    if target is None and table.target_row is not None:
        target_folder = _add_model(found, case_of(table, table.rows[table.target_row], table.target_row, seed))
        needs.append(target_folder)
    asked = Measuring(name, seed, chosen, source, target_folder or target)
    settings = {"model": case.name, "row": asdict(asked)}
    if chosen in ("shared", "searched"):  # chosen within a budget
        settings |= {"budget": asdict(case.config.budget), "search": case.config.search.to_json()}
    folder, effort = named([name, f"seed{seed}"], settings), _LOOK_UP if record else _TEST_PASS
    work = Work(folder, case, tuple(dict.fromkeys(needs)), "row", asked, record, effort)
    return found.setdefault(folder, work)


def _add_model(found: dict[str, Work], case: Case) -> str:
    folder = f"{MODELS}/{case.name}"
    if folder not in found:
        needs = () if case.beginning is None else (_add_model(found, case.beginning),)
        found[folder] = Work(folder, case, needs, effort=case.effort, fitted=case.fitted)
    return folder


def _add_pass(found: dict[str, Work], case: Case) -> str | None:
    """The pass over the test images that all rows of a model share; None where the metric is no mean over images."""
    task = tasks[case.config.options.task or task_of(Path(case.model))]
    if task.metric_name != task.score_name:
        return None
    folder, needs = f"{PASSES}/{case.tested}", () if case.kind == "float" else (_add_model(found, case),)
    found.setdefault(folder, Work(folder, case, needs, "pass", effort=_TEST_PASS))
    return folder
