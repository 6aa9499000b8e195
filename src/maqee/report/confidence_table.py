"""How well confidences rank images, as tables."""

from __future__ import annotations

from typing import Any


def confidence_table(result: dict[str, Any]) -> str:
    """Rank correlations with the score, then with what full depth adds, then where the confidences lie."""
    heading = (
        f"{result['data']}, {result['images']} calibration images, {result['precision']}; "
        f"the run decides by {result['task']}"
    )
    score = (
        f"rank correlation with the score ({result['score_name']}) at each exit; 1 is best\n"
        "mean: of early exits; wins: how often this mean is the largest when the images are drawn anew"
    )
    gain = "rank correlation with what full depth adds to the score; -1 is best"
    return "\n\n".join(
        (heading, _ranks(result, "score", score), _ranks(result, "gain", gain), _spreads(result), _best(result))
    )


def _ranks(result: dict[str, Any], figure: str, title: str) -> str:
    lines = [title, _titles(result, 9) + f"{'mean':>9}" + (f"{'wins':>7}" if figure == "score" else "")]
    for row in result["confidences"]:
        values = [*(found[figure] for found in row["exits"]), row[f"mean_{figure}"]]
        wins = f"{row['wins']:>7.0%}" if figure == "score" else ""
        lines.append(_name(result, row["task"]) + "".join(f"{_number(value):>9}" for value in values) + wins)
    return "\n".join(lines)


def _spreads(result: dict[str, Any]) -> str:
    lines = ["confidences: 10 % quantile to 90 % quantile", _titles(result, 16)]
    for row in result["confidences"]:
        cells = (f"{found['spread'][1]:.3f} - {found['spread'][3]:.3f}" for found in row["exits"])
        lines.append(_name(result, row["task"]) + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def _best(result: dict[str, Any]) -> str:
    if result["best"] is None:
        return "No confidence has a rank correlation at every early exit: scores or confidences are all the same."
    return f"largest mean rank correlation with the score: {result['best']}"


def _titles(result: dict[str, Any], width: int) -> str:
    blocks = (found["block"] for found in result["confidences"][0]["exits"])
    return _name(result, "exit after block") + "".join(f"{block:>{width}}" for block in blocks)


def _name(result: dict[str, Any], text: str) -> str:
    width = max(len("exit after block"), *(len(row["task"]) for row in result["confidences"])) + 2
    return f"{text:<{width}}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
