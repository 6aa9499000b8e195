"""How well signals rank steps of widths, as a table."""

from __future__ import annotations

from typing import Any

_COLUMNS = (
    ("loss_full", "loss"),
    ("loss_exits", "at exits"),
    ("divergence_full", "diverg."),
    ("divergence_exits", "at exits"),
    ("fewer", "fewer"),
    ("more", "more"),
)


def signal_table(result: dict[str, Any]) -> str:
    """Rank correlations of every signal with the real effects."""
    width = max(len(row["signal"]) for row in result["rows"]) + 2
    lines = [
        f"{result['model']} on {result['data']} by {result['method']}: {result['moves']} single steps from "
        f"{result['base']}, real effects on {result['held_out']} other images",
        "Rank correlation with the change of the loss and of the divergence from full precision, at full depth and as "
        "the mean over exits; the last two for steps to fewer or to more bits alone. 1 is best.",
        f"{'signal':<{width}}{'images':>7}" + "".join(f"{title:>10}" for _, title in _COLUMNS),
    ]
    for row in result["rows"]:
        cells = "".join(f"{_number(row[name]):>10}" for name, _ in _COLUMNS)
        lines.append(f"{row['signal']:<{width}}{row['images']:>7}{cells}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
