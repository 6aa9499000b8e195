"""Uniform widths as text: every pair at the threshold that calibration images choose, and the upper envelope."""

from __future__ import annotations

from typing import Any

from maqee.report.tables import threshold_words


def envelope_table(result: dict[str, Any]) -> str:
    """What `maqee envelope` shows."""
    metric = result["metric"]
    lines = [
        f"{result['data']}, {result['images']} images, model {result['model']}, {result['accuracy_is']}",
        f"full precision: exits {_exits(result['full_precision'], metric)}",
        "",
        f"uniform bits, one threshold for all exits: least cost within a point of full depth on "
        f"{result['calibration_images']} calibration images",
        _heading(metric) + "   every exit",
    ]
    for pair in result["pairs"]:
        row = pair["chosen_on_calibration"]
        figures = _figures(pair, row["thresholds"][0], row, metric)
        lines.append(f"{figures}   {_exits(pair['exits'], metric)}")
    lines += ["", f"upper envelope, thresholds {result['thresholds']}", _heading(metric)]
    lines += [_figures(point, point["threshold"], point, metric) for point in result["envelope"]]
    return "\n".join(lines)


def _heading(metric: str) -> str:
    return f"{'method':<10}{'bits':<6}{'threshold':>9}{metric:>10}{'mean exit':>11}{'BOPs':>12}{'of FP32':>9}"


def _figures(named: dict[str, Any], threshold: float, row: dict[str, Any], metric: str) -> str:
    return (
        f"{named['method']:<10}{named['bits']:<6}{threshold_words(threshold):>9}{row[metric]:>10.2%}"
        f"{row['mean_exit']:>11.2f}{row['bops']:>12.3e}{row['share_of_full_precision']:>9.2%}"
    )


def _exits(rows: list[dict[str, Any]], metric: str) -> str:
    return "  ".join(f"{row['block']}: {row[metric]:.2%}" for row in rows)
