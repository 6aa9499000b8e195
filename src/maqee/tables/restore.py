"""What the file of a table has already, where the folder of runs, or a model, is elsewhere or gone."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

from maqee.errors import MaqeeError
from maqee.io import read_json, write_json
from maqee.tables.grid import row_works
from maqee.tables.work import ROW, Work

logger = logging.getLogger(__name__)

FACTS = ("data", "images", "task", "metric")  # what all rows of a table have in common


def restore_rows(file: Path, table: str, root: Path) -> None:
    """Write the figures of every run in the file that is not finished below the root, as `measure_row` would.

    Runs are named by their settings, so that those of other settings are in nobody's way. Older versions did not name
    them: of such rows nothing is restored, which is said.

    Args:
        file: where the table was written before; it need not be there.
        table: its name.
        root: the folder of all runs.
    """
    if not file.is_file():
        return
    found = read_json(file)
    if found.get("table") != table:
        raise MaqeeError(f"{file} is not the file of the table {table!r}, and would be written over: choose another.")
    nameless = [row["name"] for row in found["rows"] if any("run" not in run for run in row["runs"])]
    if nameless:
        logger.warning(
            "%s is of an older version that did not name its runs: without their folders, %s will be left out of it",
            file, ", ".join(nameless),
        )  # fmt: skip
    for row in found["rows"]:
        if row["name"] in nameless:
            continue
        for run in row["runs"]:
            name = run["run"]
            if (root / name / ROW).is_file():
                continue
            environment = found["environment"] | {"revision": run["revision"]}
            common = {key: found[key] for key in FACTS} | {"execution": row["execution"], "environment": environment}
            write_json(root / name / ROW, {"row": row["name"], **common, **run})


def rows_to_keep(file: Path, grid: list[Work], made: Collection[str]) -> dict[str, dict[str, Any]]:
    """Rows of the file, by name, that cannot be told from others now, because their model is not in its place.

    Runs are named by a hash that has the model's weights in it. Without them, a row is kept as it is, which is said.

    Args:
        file: where the table was written before; it need not be there.
        grid: all work.
        made: names of the rows that have finished runs.
    """
    kept: dict[str, dict[str, Any]] = {}
    for row in read_json(file)["rows"] if file.is_file() else []:
        works = row_works(grid, row["name"])
        if row["name"] not in made and works and not any(work.case.weights for work in works):
            kept[row["name"]] = row
            logger.warning("The row %s is kept as %s has it: %s is not here", row["name"], file, works[0].case.model)
    return kept
