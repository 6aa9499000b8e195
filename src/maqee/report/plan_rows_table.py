"""Models side by side, as plain text."""

from __future__ import annotations

from typing import Any

MIB = 2**20


def plan_rows_table(result: dict[str, Any]) -> str:
    """Accuracy, exits, speed and size of every row, beside the first one."""
    ways = ", compiled" if result["compiled"] else ""
    lines = [
        f"{result['data']}, {result['images']} images prepared beforehand, batch {result['batch']}, "
        f"{result['precision']}{ways}, {result['device']}, executed; median of {result['repeats']}"
    ]
    wide = max(len(row["name"]) for row in result["rows"]) + 2
    lines.append(
        f"{'':<{wide}}{'accuracy':>9}{'mean exit':>11}{'images/s':>10}{'low':>9}{'high':>9}{'ratio':>8}{'MiB':>8}"
        "   leaving at each exit"
    )
    for row in result["rows"]:
        speed, mass = row["images_per_second"], " ".join(f"{share:.0%}" for share in row["exit_mass"])
        lines.append(
            f"{row['name']:<{wide}}{row['accuracy']:>9.2%}{row['mean_exit']:>11.2f}{speed['median']:>10.1f}"
            f"{speed['low']:>9.1f}{speed['high']:>9.1f}{row['ratio']:>8.2f}{row['file_bytes'] / MIB:>8.2f}   {mass}"
        )
    if any(row["quantization"] == "simulated" for row in result["rows"]):
        lines.append("On torch low bits are simulated in floating point: their speed is not that of integers.")
    return "\n".join(lines)
