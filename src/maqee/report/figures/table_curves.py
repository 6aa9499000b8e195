"""What accuracy costs: the thresholds of a row moved together, with a band over seeds."""

from __future__ import annotations

import math

from maqee.report.best_rows import Row, contenders, most_accurate
from maqee.report.figures.drawing import Section, legend_below, new_figure, show_percent
from maqee.report.figures.table_frontier import row_style
from maqee.report.finished_table import FinishedTable
from maqee.report.table_words import execution

NAME, TITLE = "curves", "Bolder and more careful thresholds"


def draw_curves(table: FinishedTable) -> Section:
    """Accuracy against expected BOPs of the best row of each method, trained and not, over one offset of thresholds."""
    rows = rows_with_curves(table.rows)
    if not rows:
        return Section(NAME, TITLE, "The table's file is of a version that kept no other thresholds than a row's own.")
    figure = new_figure(3.4 + 0.11 * len(rows))
    axes = figure.add_subplot()
    power = math.floor(math.log10(max(point["bops"]["mean"] for row in rows for point in row["curve"])))
    for row in rows:
        looks = row_style(contenders(table.rows), row)
        costs = [point["bops"]["mean"] / 10**power for point in row["curve"]]
        means = [point["accuracy"]["mean"] for point in row["curve"]]
        spreads = [point["accuracy"]["std"] or 0.0 for point in row["curve"]]
        low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
        high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
        axes.fill_between(costs, low, high, color=looks["color"], alpha=0.2, lw=0)
        axes.plot(costs, means, lw=1.4, ls="-" if row["recovered"] else "--", ms=5, label=_label(row), **looks)
    axes.set_xlabel(f"expected BOPs an image (1e{power})")
    axes.set_title(table.metric)
    show_percent(axes.yaxis)
    axes.grid(True)
    legend_below(figure, axes)
    offsets = [point["offset"] for point in rows[0]["curve"]]
    words = (
        "The best row of each method, with training (lines) and without (dashes), as all of its thresholds are moved "
        f"by {min(offsets):+g} to {max(offsets):+g}. Bands are one standard deviation over seeds to each side. Test "
        f"images, {execution(table)}."
    )
    alt = ", ".join(
        f"{row['name']} from {row['curve'][0]['accuracy']['mean']:.2%} to {row['curve'][-1]['accuracy']['mean']:.2%}"
        for row in rows
    )
    return Section(NAME, TITLE, words, f"{table.metric} against BOPs over thresholds: {alt}.", figure)


def _label(row: Row) -> str:
    """The row's name, and how many of its seeds the curve is of where it is not all of them."""
    seeds = row["curve"][0]["seeds"]
    return row["name"] if seeds == row["seeds"] else f"{row['name']} ({seeds} of {row['seeds']} seeds)"


def rows_with_curves(rows: list[Row]) -> list[Row]:
    """Of the contenders that have a curve, the most accurate of each method and kind of bits, trained and not."""
    found: dict[tuple[str, bool, bool], Row] = {}
    for row in most_accurate([row for row in rows if row.get("curve")]):
        found.setdefault((row["method"], row["bits"].startswith("best"), row["recovered"] > 0), row)
    return [row for row in rows if row in found.values()]
