"""The page about a table: its content, put into the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from maqee.report import table_words as words
from maqee.report.best_rows import Row, cheapest_controlled, most_accurate, undominated
from maqee.report.figure_files import Shown
from maqee.report.finished_table import FinishedTable
from maqee.report.grid_cells import figure_cells, table_notes
from maqee.report.report_words import Tile
from maqee.report.tables import threshold_words


class Cell(NamedTuple):
    """A figure; the second and third N/A of a row say nothing new, and a phone leaves them out."""

    label: str
    text: str
    best: bool
    again: bool


class Line(NamedTuple):
    """A row as it is shown."""

    name: str
    words: str
    on_frontier: bool
    plain: bool
    cells: list[Cell]


class RunLine(NamedTuple):
    """One run of a row."""

    row: str
    seed: str
    accuracy: str
    mean_exit: str
    bops: str
    thresholds: str


class CommandLine(NamedTuple):
    """How a row is made again."""

    name: str
    command: str
    revision: str


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """Everything that the template says about a table."""

    name: str
    kicker: str
    summary: str
    tiles: list[Tile]
    metric: str
    execution: str
    lines: list[Line]
    notes: tuple[str, ...]
    sections: list[Shown]
    commands: list[CommandLine]
    runs: list[RunLine]
    settings: list[tuple[str, str]]
    file: str

    @classmethod
    def of(cls, table: FinishedTable, sections: list[Shown]) -> TablePage:
        """Gather it."""
        values = table.values
        return cls(
            name=str(values["table"]),
            kicker=", ".join(
                [*dict.fromkeys(row["backbone"] for row in table.rows), str(values.get("data", "")) or table.metric]
            ),
            summary=words.summary(table),
            tiles=words.tiles(table),
            metric=table.metric,
            execution=words.execution(table),
            lines=table_lines(table),
            notes=table_notes(values),
            sections=sections,
            commands=[CommandLine(row["name"], row["command"], row["revision"]) for row in table.rows],
            runs=[line for row in table.rows for line in _run_lines(row)],
            settings=words.settings(table),
            file=table.settings,
        )


def table_lines(table: FinishedTable) -> list[Line]:
    """Every row with its figures, the best of each column marked where best means something.

    The best accuracy counts at standard configuration, the least mean exit and BOPs where a target is reached: few BOPs
    alone are no merit.
    """
    rows = table.rows
    ranked = most_accurate(rows)
    best = {row["name"] for row in ranked if row["accuracy"]["mean"] == ranked[0]["accuracy"]["mean"]}
    marked = {("standard", "accuracy"): best}
    for key in ("mean_exit", "bops"):
        needed = {row["name"]: row["controlled"][key]["mean"] for row in cheapest_controlled(rows, key)}
        marked["controlled", key] = {name for name, value in needed.items() if value == min(needed.values())}
    frontier = {row["name"] for row in undominated(rows)}
    names = {"mean_exit": "mean exit", "bops": "BOPs", "accuracy": table.metric}
    lines = []
    for row in rows:
        cells = [
            Cell(
                f"{protocol}: {names[key]}" if found is not None else protocol,
                text,
                row["name"] in marked.get((protocol, key), ()),
                found is None and key != "mean_exit",
            )
            for protocol, found in (("controlled", row["controlled"]), ("standard", row))
            for key, text in zip(names, figure_cells(found), strict=True)
        ]
        lines.append(Line(row["name"], words.row_words(row), row["name"] in frontier, row["method"] == "float", cells))
    return lines


def _run_lines(row: Row) -> list[RunLine]:
    return [
        RunLine(
            row["name"],
            str(run["seed"]),
            f"{run['accuracy']:.2%}",
            f"{run['mean_exit']:.2f}",
            f"{run['bops']:.3e}",
            " ".join(map(threshold_words, run["thresholds"])) or "none",
        )
        for run in row.get("runs", [])
    ]
