"""Times of the roads between exits as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def road_table(times: Mapping[str, Any]) -> str:
    """One line a road: what it takes, what leaving after it takes, and what share its operations are."""
    whole = sum(times["road_ms"])
    lines = [
        f"{times['model']} on {times['engine']}, {times['device']}, batch {times['batch']}: executed, median of "
        f"{times['repeats']}",
        f"{'up to block':<12}{'ms an image':>12}{'in all':>10}{'share':>8}{'of MACs':>9}",
    ]
    rows = zip(times["exit_blocks"], times["road_ms"], times["exit_ms"], times["shares"], strict=True)
    lines += [
        f"{block:<12}{road:>12.4g}{leaving:>10.4g}{road / whole:>8.0%}{share:>9.0%}"
        for block, road, leaving, share in rows
    ]
    return "\n".join(lines)
