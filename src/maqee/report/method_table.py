"""Quantization methods beside each other, as a table."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def method_table(result: dict[str, Any]) -> Table:
    """Mean and spread of every combination, full precision first."""
    title = f"{result['model']} on {result['data']}, {result['test_images']} images, accuracy simulated"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("method", "bits", "scope"):
        table.add_column(name)
    for name in ("images", "seeds", "fit s"):
        table.add_column(name, justify="right")
    several = len(result["exit_blocks"]) > 1
    for block in result["exit_blocks"]:
        table.add_column(f"exit {block} %" if several else "accuracy %", justify="right", no_wrap=True)
    for row in result["summary"]:
        spread = row["spread"] or [None] * len(row["mean"])
        figures = [
            f"{100 * mean:.2f}" + ("" if width is None else f" ± {100 * width:.2f}")
            for mean, width in zip(row["mean"], spread, strict=True)
        ]
        counts = [str(row["images"]), str(row["seeds"]), f"{row['fit_seconds']:.1f}"]
        if row["method"] == "float":
            counts = ["", "", ""]
        table.add_row(row["method"], row["bits"], row["scope"], *counts, *figures)
    return table
