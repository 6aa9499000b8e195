"""`maqee.table`: do what a table's file wants, wherever, and collect it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maqee.disk import check_writable
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.io import read_json, write_json
from maqee.progress import steps
from maqee.tables.collect import collect_rows, joined
from maqee.tables.grid import make_grid
from maqee.tables.in_process import run_here
from maqee.tables.on_ray import require_ray, run_on_ray
from maqee.tables.restore import FACTS, restore_rows, rows_to_keep
from maqee.tables.table_file import read_table
from maqee.tables.work import Place, Work
from maqee.tables.work_queue import WorkQueue, still_needed
from maqee.tables.worker_processes import run_in_processes


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, as far as its runs are finished.

    Attributes:
        name: of the table.
        facts: data set, number of test images, task and metric, and versions and hardware that the rows were made with.
        rows: in the order of the file, each with mean and standard deviation over its seeds.
        missing: names of rows without a finished run.
        failures: folders of the work that failed this time, each with the reason.
        computed: folders of the work that was done this time.
    """

    name: str
    facts: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]
    failures: Mapping[str, str]
    computed: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, the same for equal inputs but for the environment; what happened this time is not in it."""
        return {
            "table": self.name,
            **self.facts,
            "rows": [dict(row) for row in self.rows],
            "missing": list(self.missing),
        }


def table(
    path: str | Path,
    *,
    only: Sequence[str] = (),
    seeds: int | None = None,
    assignments: Sequence[str] = (),
    jobs: int = 1,
    ray: str | None = None,
    runs: str | Path | None = None,
    data_root: str | Path | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    show: bool = True,
) -> Table:
    """Do the runs of a table that are not finished yet, and collect all that are.

    A run that fails is noted, and the others go on. All figures are simulated.

    Args:
        path: the YAML file of the table.
        only: names of rows to do; all when left out. Finished runs of other rows are collected too.
        seeds: seeds of every row, in place of the file's.
        assignments: "key=value" with dotted keys, stronger than the file.
        jobs: how many runs go on side by side, each in a process of its own; 1 is this process.
        ray: address of a Ray cluster that does the work, "auto", or "local" for one of this machine.
        runs: folder for the runs; runs/tables/NAME when left out.
        data_root: where the data lie, if not where they were.
        out: file for the table, written at the end; runs that it has already are not made again.
        device: the GPU if there is one.
        show: progress with the time left.
    """
    file = read_table(Path(path), assignments)
    if jobs < 1:
        raise MaqeeError(f"jobs: {jobs} must be at least 1.")
    if ray is not None:
        require_ray()
    root = Path("runs", "tables", file.name) if runs is None else Path(runs)
    data = None if data_root is None else Path(data_root).resolve()
    place = Place(root.resolve(), data, device, describe_environment()["revision"])
    check_writable(place.root)
    if out is not None:
        restore_rows(Path(out), file.name, place.root)
    everything, command = make_grid(file, (), seeds), _command(path, seeds, assignments)

    def on_change(queue: WorkQueue, work: Work) -> None:
        bar.update(queue.percent, f"{queue.runs_words}, last {work.folder}")

    queue = WorkQueue(still_needed(make_grid(file, only, seeds), place.root), place.root, on_change)
    with steps(f"table {file.name}, per cent", 100, enabled=show) as bar:
        bar.update(queue.percent, queue.runs_words)
        if ray is not None:
            run_on_ray(queue, place, ray, jobs)
        elif jobs > 1:
            run_in_processes(queue, place, jobs)
        else:
            run_here(queue, place)
    rows, facts = collect_rows(file, everything, place.root, command)
    found = {row["name"]: row for row in rows}
    if out is not None and (kept := rows_to_keep(Path(out), everything, found)):
        found |= kept
        facts = _with_facts_of(Path(out), facts)
    done = Table(
        name=file.name,
        facts=facts,
        rows=tuple(found[name] for name in file.rows if name in found),
        missing=tuple(name for name in file.rows if name not in found),
        failures={folder: failure.reason for folder, failure in queue.failures.items()},
        computed=tuple(queue.computed),
    )
    if out is not None:
        write_json(Path(out), done.to_json())
    return done


def _with_facts_of(out: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """What rows have in common, with what the file says of those that are kept."""
    before = read_json(out)
    environments = [facts["environment"], before["environment"]]
    return {key: before[key] for key in FACTS} | facts | {"environment": joined(environments)}


def _command(path: str | Path, seeds: int | None, assignments: Sequence[str]) -> str:
    """What makes the table; where it is done changes nothing and is left out."""
    words = ["maqee table", str(path), *([] if seeds is None else [f"--seeds {seeds}"])]
    return " ".join([*words, *(f"--set {text}" for text in assignments)])
