"""A table of runs as plain cells, which every kind of rendering shows alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

NOT_REACHED = "N/A"


@dataclass(frozen=True)
class Cells:
    """What is shown.

    Attributes:
        caption: one sentence above or below.
        groups: headings over several columns, each with how many.
        columns: headings.
        rows: as many cells as columns in each.
        words: how many of the first columns are words; the others are figures.
        notes: sentences below.
    """

    caption: str
    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int
    notes: tuple[str, ...]


def table_cells(table: dict[str, Any]) -> Cells:
    """The cells of a table's JSON: words, controlled performance, standard configuration."""
    metric, rows = table.get("metric", "accuracy"), table["rows"]
    columns: tuple[str, ...] = ("row", "bits", "method", "exits", "thresholds", "trained", "seeds")
    own = any(map(settings_words, rows))  # in an ablation they are what a row is about, elsewhere there are none
    columns = (*columns, "own settings") if own else columns
    figures = ("mean exit", "BOPs", metric)
    execution = " and ".join(sorted({row["execution"] for row in rows})) or "no runs yet"
    backbones = ", ".join(dict.fromkeys(row["backbone"] for row in rows))
    caption = f"{table['table']}: {backbones}, {table.get('data', '')}, {table.get('images', 0)} images, {execution}"
    return Cells(
        caption=caption,
        groups=(("", len(columns)), ("controlled performance", 3), ("standard configuration", 3)),
        columns=(*columns, *figures, *figures),
        rows=tuple(
            (
                *_words(row),
                *([settings_words(row)] if own else []),
                *figure_cells(row["controlled"]),
                *figure_cells(row),
            )
            for row in rows
        ),
        words=len(columns),
        notes=table_notes(table),
    )


def spread(figure: dict[str, float | None], kind: str) -> str:
    """A mean with its standard deviation over seeds; without one where there is a single seed."""
    mean, deviation = figure["mean"], figure["std"]
    assert mean is not None
    if kind == "bops":
        power = math.floor(math.log10(mean)) if mean > 0 else 0
        scaled = f"{mean / 10**power:.3f}"
        return f"{scaled}e{power}" if deviation is None else f"({scaled} ± {deviation / 10**power:.3f})e{power}"
    if kind == "share":
        return f"{mean:.2%}" if deviation is None else f"{100 * mean:.2f} ± {deviation:.2%}"
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def _words(row: dict[str, Any]) -> tuple[str, ...]:
    method = row["method"] if row["quantizer"] is None else f"{row['method']} ({row['quantizer']})"
    trained = f"{row['recovered']} steps" if row["recovered"] else "no"
    if row["recovered"] and row["training_kept"] < row["seeds"]:
        trained += f", kept in {row['training_kept']}"
    return row["name"], row["bits"], method, row["exits"], row["thresholds"], trained, str(row["seeds"])


def settings_words(row: dict[str, Any]) -> str:
    """What a row has set for itself, by the ends of the keys; rows of older versions do not say it."""
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in row.get("settings", {}).items())


def figure_cells(values: dict[str, Any] | None) -> tuple[str, str, str]:
    """Mean exit, BOPs and accuracy of a row, or of its controlled performance, which not every row reaches."""
    if values is None:
        return NOT_REACHED, NOT_REACHED, NOT_REACHED
    return spread(values["mean_exit"], "exit"), spread(values["bops"], "bops"), spread(values["accuracy"], "share")


def table_notes(table: dict[str, Any]) -> tuple[str, ...]:
    """Sentences below a table: what the figures are, and what is wrong with them."""
    notes = ["Mean and standard deviation over seeds."]
    targets = {f"{row['controlled']['target']:.2%}" for row in table["rows"] if row["controlled"] is not None}
    if targets:
        notes.append(
            f"Controlled performance: all thresholds moved by one offset, the cheapest that reaches "
            f"{' or '.join(sorted(targets))} on calibration images; N/A where a seed does not reach it."
        )
    if table["missing"]:
        notes.append(f"Rows without a finished run: {', '.join(table['missing'])}.")
    dirty = sorted({row["name"] for row in table["rows"] if "dirty" in row["revision"]})
    if dirty:
        notes.append(f"Made with uncommitted changes: {', '.join(dirty)}.")
    return tuple(notes)
