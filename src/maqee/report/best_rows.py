"""Which rows of a table are the best ones, and whether that is more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def contenders(rows: Sequence[Row]) -> list[Row]:
    """Rows that can be compared by cost: the quantized ones, or all where none is."""
    return [row for row in rows if row["method"] != "float"] or list(rows)


def undominated(rows: Sequence[Row]) -> list[Row]:
    """Contenders that no other beats in accuracy without costing more, the cheapest first.

    Example:
        >>> def row(name, accuracy, bops):
        ...     return {"name": name, "method": "erq", "accuracy": {"mean": accuracy}, "bops": {"mean": bops}}
        >>> [found["name"] for found in undominated([row("a", 0.8, 3), row("b", 0.9, 2), row("c", 0.7, 1)])]
        ['c', 'b']
    """
    found: list[Row] = []
    for row in sorted(contenders(rows), key=lambda row: (row["bops"]["mean"], -row["accuracy"]["mean"])):
        if not found or row["accuracy"]["mean"] > found[-1]["accuracy"]["mean"]:
            found.append(row)
    return found


def most_accurate(rows: Sequence[Row]) -> list[Row]:
    """Contenders by accuracy, the best first; of equal ones the cheapest."""
    return sorted(contenders(rows), key=lambda row: (-row["accuracy"]["mean"], row["bops"]["mean"]))


def cheapest_controlled(rows: Sequence[Row], key: str) -> list[Row]:
    """Contenders that reach the target, by mean exit or BOPs (the key), the least first."""
    reached = [row for row in contenders(rows) if row["controlled"] is not None]
    return sorted(reached, key=lambda row: row["controlled"][key]["mean"])


def apart(one: dict[str, float | None], other: dict[str, float | None]) -> bool | None:
    """Whether two means differ by more than two standard deviations of their difference; None without deviations.

    Example:
        >>> apart({"mean": 0.9, "std": 0.03}, {"mean": 0.8, "std": 0.04})
        False
        >>> apart({"mean": 0.9, "std": 0.03}, {"mean": 0.79, "std": 0.04})
        True
    """
    if one["std"] is None or other["std"] is None:
        return None
    assert one["mean"] is not None
    assert other["mean"] is not None
    # To nine places: 0.9 - 0.8 is a little less than 0.1 in binary, which must not decide.
    gap = round(abs(one["mean"] - other["mean"]) - 2 * math.hypot(one["std"], other["std"]), 9)
    return gap > 0
