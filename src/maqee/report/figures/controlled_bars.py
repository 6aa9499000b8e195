"""Controlled performance: what each row of a table needs to reach the same target."""

from __future__ import annotations

import math

from maqee.report.best_rows import contenders
from maqee.report.figures.drawing import BLUE, INK, ORANGE, QUIET, Section, new_figure
from maqee.report.finished_table import FinishedTable
from maqee.report.grid_cells import NOT_REACHED
from maqee.report.palette import shorten
from maqee.report.table_words import controlled_words

NAME, TITLE = "controlled", "What the same accuracy costs"
LETTERS = 24  # of a row's name


def draw_controlled(table: FinishedTable) -> Section:
    """Two bars a row: the mean exit and the BOPs at which it reaches the target; N/A where a seed does not."""
    rows = contenders(table.rows)
    reached = [row for row in rows if row["controlled"] is not None]
    if not reached:
        return Section(NAME, TITLE, controlled_words(table))
    figure = new_figure(0.8 + 0.27 * len(rows))
    sides = figure.subplots(1, 2, sharey=True)
    power = math.floor(math.log10(max(row["controlled"]["bops"]["mean"] for row in reached)))
    for axes, key, unit, title in (
        (sides[0], "mean_exit", 1.0, "mean exit"),
        (sides[1], "bops", 10.0**power, f"BOPs (1e{power})"),
    ):
        for place, row in enumerate(rows):
            if row["controlled"] is None:
                axes.text(0, place, f" {NOT_REACHED}", va="center", fontsize=8.5, color=QUIET)
                continue
            found = row["controlled"][key]
            colour = ORANGE if row["method"] == "maqee" else BLUE
            error = None if found["std"] is None else found["std"] / unit
            axes.barh(place, found["mean"] / unit, 0.62, color=colour, xerr=error, ecolor=INK, error_kw={"lw": 1.1})
        axes.set_title(title)
        axes.set_xlim(left=0)
        axes.grid(True, axis="x")
        axes.locator_params(axis="x", nbins=4)
    sides[0].set_yticks(range(len(rows)), [shorten(row["name"], LETTERS) for row in rows])
    sides[0].set_ylim(len(rows) - 0.4, -0.6)
    for axes in sides:
        axes.tick_params(axis="y", length=0)
    needed = [
        (row["name"], row["controlled"]["mean_exit"]["mean"], row["controlled"]["bops"]["mean"]) for row in reached
    ]
    alt = ", ".join(f"{name} mean exit {exit_:.2f}, {bops:.3e} BOPs" for name, exit_, bops in needed)
    return Section(NAME, TITLE, controlled_words(table), f"Needed to reach the target: {alt}.", figure)
