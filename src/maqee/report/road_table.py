"""Times of the roads between exits as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def road_table(times: Mapping[str, Any]) -> str:
    """One line a road: what it takes, leaving after it takes, closing the exit saves, and its share of operations."""
    whole = sum(times["road_ms"])
    lines = [
        f"{times['model']} on {times['engine']}, {times['device']}, batch {times['batch']}: executed, median of "
        f"{times['repeats']}",
        f"{'up to block':<12}{'ms an image':>12}{'in all':>10}{'if closed':>11}{'share':>8}{'of MACs':>9}",
    ]
    known = [f"-{saved:.4g}" for saved in times["head_ms"]]
    closing = known + [""] * (len(times["road_ms"]) - len(known))
    rows = zip(times["exit_blocks"], times["road_ms"], times["exit_ms"], closing, times["shares"], strict=True)
    lines += [
        f"{block:<12}{road:>12.4g}{leaving:>10.4g}{saved:>11}{road / whole:>8.0%}{share:>9.0%}"
        for block, road, leaving, saved, share in rows
    ]
    if times["pairs"]:
        lines[1:] = _pair_lines(times)
    return "\n".join(lines)


def _pair_lines(times: Mapping[str, Any]) -> list[str]:
    """One line a pair of widths: what leaving at each exit takes, and full depth as against the fastest pair."""
    fastest = times["pairs"][0][1][-1]
    lines = [f"{'ms to block':<12}" + "".join(f"{block:>10}" for block in times["exit_blocks"]) + f"{'times':>8}"]
    for bits, exit_ms in times["pairs"]:
        costs = "".join(f"{value:>10.4g}" for value in exit_ms)
        lines.append(f"{bits:<12}{costs}{exit_ms[-1] / fastest:>8.2f}")
    return lines
