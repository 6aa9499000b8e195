"""The words of a report about a table: its summary, its numbers in large, its settings."""

from __future__ import annotations

from typing import Any

from maqee.report.best_rows import Row, apart, cheapest_controlled, contenders, most_accurate
from maqee.report.finished_table import FinishedTable
from maqee.report.grid_cells import settings_words, spread
from maqee.report.report_words import Tile


def execution(table: FinishedTable) -> str:
    """Whether the figures are simulated or executed."""
    return " and ".join(sorted({row["execution"] for row in table.rows}))


def full_bops(table: FinishedTable) -> float | None:
    """What an image costs in full precision at full depth, where the table has that row."""
    plain = [row for row in table.rows if row["method"] == "float" and row["exits"] == "none"]
    return plain[0]["bops"]["mean"] if plain else None


def summary(table: FinishedTable) -> str:
    """The whole table in a sentence or two."""
    ranked = most_accurate(table.rows)
    best = ranked[0]
    words = (
        f"Of {_count(len(ranked), _kind(table))}, {best['name']} has the best {table.metric}, "
        f"{spread(best['accuracy'], 'share')} ({best['execution']}), at {_cost(table, best['bops'])} and mean exit "
        f"{spread(best['mean_exit'], 'exit')}"
    )
    if len(ranked) > 1:
        words += f"; {_next(best, ranked[1])}"
    reached = cheapest_controlled(table.rows, "bops")
    if not reached:
        return f"{words}."
    name, found = reached[0]["name"], reached[0]["controlled"]
    return (
        f"{words}. The target of {found['target']:.2%} is reached for the fewest BOPs by {name}: "
        f"{_cost(table, found['bops'])}, mean exit {spread(found['mean_exit'], 'exit')}."
    )


def tiles(table: FinishedTable) -> list[Tile]:
    """What a reader wants to know first."""
    best = most_accurate(table.rows)[0]
    found = [Tile(f"{best['accuracy']['mean']:.2%}", f"the best {table.metric}: {best['name']}, {best['execution']}")]
    reached = cheapest_controlled(table.rows, "mean_exit")
    if reached:
        first = reached[0]
        value = f"{first['controlled']['mean_exit']['mean']:.2f}"
        found.append(Tile(value, f"the least mean exit that reaches the target: {first['name']}"))
    seeds = sorted({row["seeds"] for row in table.rows})
    counted = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    found.append(Tile(counted, "seeds a row" if seeds[-1] > 1 else "seed a row"))
    return [*found, Tile(f"{table.values.get('images', 0):,}", "test images, looked at once by each run")]


def settings(table: FinishedTable) -> list[tuple[str, str]]:
    """How the table came about."""
    values, environment = table.values, table.values["environment"]
    rows = [
        ("backbone", ", ".join(dict.fromkeys(row["backbone"] for row in table.rows))),
        ("data", str(values.get("data", "not known"))),
        ("task", str(values.get("task", "not known"))),
        ("metric", table.metric),
        ("figures are", execution(table)),
        ("revision of the sources", ", ".join(sorted({row["revision"] for row in table.rows}))),
    ]
    if values["missing"]:
        rows.append(("rows without a finished run", ", ".join(values["missing"])))
    listed = {name: sorted(environment.get(name, {}).items()) for name in ("versions", "hardware")}
    return rows + [(name, ", ".join(f"{key} {value}" for key, value in found)) for name, found in listed.items()]


def row_words(row: Row) -> str:
    """What a row is, in a line."""
    method = row["method"] if row["quantizer"] is None else f"{row['method']} on {row['quantizer']}"
    parts = [row["bits"], method, "no exits" if row["exits"] == "none" else f"exits {row['exits']}"]
    if row["exits"] != "none":
        parts.append(f"thresholds {row['thresholds']}")
    if row["recovered"]:
        kept = row["training_kept"]
        parts.append(f"{row['recovered']} steps of training" + ("" if kept == row["seeds"] else f", kept in {kept}"))
    if own := settings_words(row):
        parts.append(own)
    return " · ".join([*parts, _count(row["seeds"], "seed"), row["execution"]])


def controlled_words(table: FinishedTable) -> str:
    """What the target is, and who reaches it."""
    several = contenders(table.rows)
    reached = [row for row in several if row["controlled"] is not None]
    if not reached:
        return "No row reaches the target of controlled performance in every seed, or there was none."
    targets = " or ".join(sorted({f"{row['controlled']['target']:.2%}" for row in reached}))
    return (
        f"All thresholds of a row moved by one offset: the cheapest policy that reaches {targets} on calibration "
        f"images. {len(reached)} of {_count(len(several), _kind(table))} do in every seed. Means over seeds, lines "
        f"one standard deviation to each side; less is better ({execution(table)})."
    )


def _next(best: Row, other: Row) -> str:
    gap = 100 * (best["accuracy"]["mean"] - other["accuracy"]["mean"])
    sure = apart(best["accuracy"], other["accuracy"])
    far = "by one seed" if sure is None else f"{'beyond' if sure else 'within'} two standard deviations"
    return f"the next, {other['name']}, is {gap:.2f} points behind, {far}"


def _kind(table: FinishedTable) -> str:
    return "row" if all(row["method"] == "float" for row in table.rows) else "quantized row"


def _cost(table: FinishedTable, bops: dict[str, Any]) -> str:
    full = full_bops(table)
    return f"{bops['mean']:.3e} BOPs" if full is None else f"{bops['mean'] / full:.2%} of the BOPs of full precision"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
