"""The plans of a frontier as text: a line for each target."""

from __future__ import annotations

from typing import Any


def frontier_plans_table(result: dict[str, Any]) -> str:
    """What `maqee eval RUN --frontier` shows."""
    metric, score = result["metric"], result["score"]
    lines = [
        f"{result['data']}, {result['images']} images, {result['method']}, {result['accuracy_is']}; targets and what "
        f"was expected are {score} of calibration images, expected where they did not choose",
        f"{'drop':<8}{'target':>8}{'expected':>18}{metric:>10}{'mean exit':>11}{'BOPs':>12}{'of FP32':>9}"
        f"{'W bits':>8}{'A bits':>8}   leaving at each exit",
    ]
    for row in result["plans"]:
        mass = " ".join(f"{share:.0%}" for share in row["exit_mass"])
        lines.append(
            f"{row['drop']:<8.2%}{_share(row['target']):>8}{_expected(row):>18}{row[metric]:>10.2%}"
            f"{row['mean_exit']:>11.2f}{row['bops']:>12.3e}{row['share_of_full_precision']:>9.2%}"
            f"{_bits(row['weight_bits']):>8}{_bits(row['activation_bits']):>8}   {mass}"
        )
    return "\n".join(lines)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _expected(row: dict[str, Any]) -> str:
    error = row["expected_error"]
    return _share(row["expected"]) + ("" if error is None else f" +- {error:.2%}")


def _bits(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
