"""What is quantized, as a table."""

from __future__ import annotations

import re
from typing import Any

from rich.table import Table


def layer_table(result: dict[str, Any], every_layer: bool = False) -> Table:
    """One row a layer, or one for all layers that differ in their number only."""
    title = f"{result['model']} by {result['method']}; bits are weights/input, of attention operand x operand"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("layer", "role", "grid", "asked", "got"):
        table.add_column(name, overflow="fold")
    table.add_column("weights", justify="right")
    for row in result["rows"] if every_layer else group_rows(result["rows"]):
        weights = f"{row['weights']:,}" if row["weights"] else ""
        table.add_row(row["layer"], row["role"], row["grid"], row["asked"], row["got"], weights)
    return table


def weights_line(result: dict[str, Any]) -> str:
    """How much of the model is quantized, in words."""
    share = result["quantized_weights"] / max(1, result["weights"])
    return f"{result['quantized_weights']:,} of {result['weights']:,} weights ({share:.1%}) are quantized."


def group_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that differ in a layer's number only, as one: "blocks.0-11.attn.qkv", with the number of layers."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        shape = re.sub(r"\d+", "*", row["layer"], count=1)
        groups.setdefault((shape, *(row[name] for name in ("role", "grid", "asked", "got"))), []).append(row)
    return [
        {
            **members[0],
            "layer": key[0].replace("*", _span([member["layer"] for member in members])),
            "layers": len(members),
            "weights": sum(member["weights"] for member in members),
        }
        for key, members in groups.items()
    ]


def _span(names: list[str]) -> str:
    """The numbers in names as text: "3", "0-11" or "0,2,5"."""
    numbers = [int(found[0]) for name in names if (found := re.search(r"\d+", name))]
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))
