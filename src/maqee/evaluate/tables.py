"""Results as plain text tables."""

from __future__ import annotations

from typing import Any


def exit_table(result: dict[str, Any]) -> str:
    """Accuracy and cost of every exit."""
    full = result["exits"][-1]["macs"]
    lines = [f"{result['data']}, {result['images']} images, stage {result['stage']}, {result['precision']}"]
    lines.append(f"{'exit after block':<18}{'head':<14}{'accuracy':>10}{'MACs':>12}{'share':>8}")
    lines += [
        f"{row['block']:<18}{row.get('head', 'backbone'):<14}{row['accuracy']:>10.2%}"
        f"{row['macs']:>12.3e}{row['macs'] / full:>8.1%}"
        for row in result["exits"]
    ]
    return "\n".join(lines)


def policy_table(result: dict[str, Any]) -> str:
    """A shared threshold against accuracy, mean exit and cost."""
    full = result["policies"][-1]["macs"]
    lines = [f"one threshold for all exits ({result['policies_are']})"]
    lines.append(f"{'threshold':<18}{'accuracy':>10}{'mean exit':>11}{'MACs':>12}{'share':>8}   leaving at each exit")
    for row in result["policies"]:
        threshold = row["thresholds"][0]
        name = "never" if threshold > 1 else f"{threshold:.2f}"
        mass = " ".join(f"{share:.0%}" for share in row["exit_mass"])
        lines.append(
            f"{name:<18}{row['accuracy']:>10.2%}{row['mean_exit']:>11.2f}{row['macs']:>12.3e}"
            f"{row['macs'] / full:>8.1%}   {mass}"
        )
    return "\n".join(lines)
