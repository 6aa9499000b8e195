"""The rows of a table as points with their spread over seeds: accuracy against expected BOPs, and against mean exit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from maqee.report.best_rows import Row, contenders, undominated
from maqee.report.figures.drawing import (
    AMBER,
    BLUE,
    GREEN,
    ORANGE,
    PAPER,
    PURPLE,
    QUIET,
    Section,
    legend_below,
    new_figure,
    show_percent,
)
from maqee.report.finished_table import FinishedTable
from maqee.report.table_words import execution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"maqee": ORANGE, "erq": BLUE, "repq": GREEN, "mptq": PURPLE, "rtn": AMBER}
MARKERS = "osD^vPX<>"  # of the rows of one method


def draw_table_bops(table: FinishedTable) -> Section:
    """Accuracy against expected BOPs, and a band through the rows that no other beats."""
    figure = new_figure(3.4 + 0.11 * len(table.rows))
    axes = figure.add_subplot()
    rows = contenders(table.rows)
    power = math.floor(math.log10(max(row["bops"]["mean"] for row in rows)))
    best = undominated(rows)
    line = [(row["bops"]["mean"] / 10**power, row["accuracy"]["mean"]) for row in best]
    axes.plot(*zip(*line, strict=True), color=QUIET, alpha=0.3, lw=6, solid_capstyle="round", zorder=0.5)
    _points(axes, table, "bops", 10**power)
    axes.set_xlabel(f"expected BOPs an image (1e{power})")
    _finish(axes, table)
    legend_below(figure, axes)
    words = (
        "Up is better, left is cheaper. Points are means over seeds, thin lines one standard deviation to each side. "
        "The grey band joins the rows that no other beats. Hollow marks are rows without training. "
        f"Standard configuration, test images, {execution(table)}."
    )
    alt = ", ".join(f"{row['name']} {row['accuracy']['mean']:.2%} at {row['bops']['mean']:.3e}" for row in rows)
    return Section("bops", "What accuracy costs", words, f"{table.metric} against BOPs: {alt}.", figure)


def draw_table_exits(table: FinishedTable) -> Section:
    """Accuracy against the mean exit."""
    figure = new_figure(3.4 + 0.11 * len(table.rows))
    axes = figure.add_subplot()
    _points(axes, table, "mean_exit", 1)
    axes.set_xlabel("mean exit (blocks run for the mean image)")
    _finish(axes, table)
    legend_below(figure, axes)
    words = (
        "The same rows by the number of blocks that an image runs through on average: left leaves earlier. "
        f"Standard configuration, test images, {execution(table)}."
    )
    rows = contenders(table.rows)
    alt = ", ".join(f"{row['name']} {row['accuracy']['mean']:.2%} at {row['mean_exit']['mean']:.2f}" for row in rows)
    return Section("mean-exit", "How early images leave", words, f"{table.metric} against mean exit: {alt}.", figure)


def row_style(rows: list[Row], row: Row) -> dict[str, Any]:
    """Colour by method, mark by the place among its rows, filled with training."""
    place = [other["name"] for other in rows if other["method"] == row["method"]].index(row["name"])
    colour = COLOURS.get(row["method"], QUIET)
    filled = colour if row["recovered"] else PAPER
    return {"color": colour, "marker": MARKERS[place % len(MARKERS)], "mfc": filled, "mec": colour}


def _points(axes: Axes, table: FinishedTable, key: str, unit: float) -> None:
    rows = contenders(table.rows)
    for row in rows:
        axes.errorbar(
            row[key]["mean"] / unit,
            row["accuracy"]["mean"],
            xerr=(row[key]["std"] or 0.0) / unit,
            yerr=row["accuracy"]["std"] or 0.0,
            ls="none",
            ms=7,
            mew=1.6,
            elinewidth=0.8,
            label=row["name"],
            **row_style(rows, row),
        )
    plain = [row for row in table.rows if row["method"] == "float" and row not in rows]
    for row, dash in zip(plain, ("--", ":", "-."), strict=False):
        axes.axhline(row["accuracy"]["mean"], color=QUIET, lw=1, ls=dash, label=row["name"])


def _finish(axes: Axes, table: FinishedTable) -> None:
    axes.set_title(table.metric)
    show_percent(axes.yaxis)
    axes.margins(x=0.08, y=0.1)
    axes.grid(True)
