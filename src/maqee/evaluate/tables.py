"""Results as plain text tables."""

from __future__ import annotations

from typing import Any

_FACTS = {"block", "head", "score", "loss", "confidence", "macs"}  # of an exit, beside its metrics


def exit_table(result: dict[str, Any]) -> str:
    """The metric, whatever else was measured, and the cost of every exit."""
    full = result["exits"][-1]["macs"]
    names = [name for name in result["exits"][0] if name not in _FACTS]
    lines = [f"{result['data']}, {result['images']} images, stage {result['stage']}, {result['precision']}"]
    titles = "".join(f"{name:>{_width(name)}}" for name in names)
    lines.append(f"{'exit after block':<18}{'head':<14}{titles}{'MACs':>12}{'share':>8}")
    for row in result["exits"]:
        figures = "".join(f"{row[name]:>{_width(name)}.2%}" for name in names)
        share = row["macs"] / full
        lines.append(f"{row['block']:<18}{row.get('head', 'backbone'):<14}{figures}{row['macs']:>12.3e}{share:>8.1%}")
    return "\n".join(lines)


def policy_table(result: dict[str, Any]) -> str:
    """A shared threshold against the metric, mean exit and cost."""
    full = result["policies"][-1]["macs"]
    metric = result.get("metric", "accuracy")
    lines = [f"one threshold for all exits ({result['policies_are']})"]
    lines.append(f"{'threshold':<18}{metric:>10}{'mean exit':>11}{'MACs':>12}{'share':>8}   leaving at each exit")
    for row in result["policies"]:
        threshold = row["thresholds"][0]
        name = "never" if threshold > 1 else f"{threshold:.2f}"
        mass = " ".join(f"{share:.0%}" for share in row["exit_mass"])
        lines.append(
            f"{name:<18}{row[metric]:>10.2%}{row['mean_exit']:>11.2f}{row['macs']:>12.3e}"
            f"{row['macs'] / full:>8.1%}   {mass}"
        )
    return "\n".join(lines)


def _width(name: str) -> int:
    return max(10, len(name) + 2)
