"""What a search on a trace found, as plain text."""

from __future__ import annotations

from typing import Any

from maqee.report.tables import expected_words, policy_lines, threshold_words


def search_table(result: dict[str, Any]) -> str:
    """The policy found, beside the plan's and full depth."""
    thresholds = result["rows"][0]["thresholds"]
    lines = _heading(result)
    lines.append(f"thresholds         {' '.join(map(threshold_words, thresholds))} (least {result['objective']})")
    lines += policy_lines([(row["name"], row) for row in result["rows"]], result["metric"], "policy")
    if result["expected"] is not None:
        lines.append(f"on other images    {expected_words(result['expected'], result['metric'])}")
    return "\n".join(lines)


def frontier_table(result: dict[str, Any]) -> str:
    """The cheapest policies by metric, and the best ones by price."""
    lines = [*_heading(result), "", "least cost, by the metric asked for"]
    asked = [(f"  {row['asked']:.2%}", row) for row in result["metrics"]]
    lines += policy_lines(asked, result["metric"], "at least")
    if result["metrics_not_reached"]:
        missed = ", ".join(f"{metric:.2%}" for metric in result["metrics_not_reached"])
        lines.append(f"  not reached at these bits: {missed}")
    lines += ["", "least J, by the price of cost"]
    priced = [(f"  {row['lambda_outer']:g}", row) for row in result["lambdas"]]
    return "\n".join([*lines, *policy_lines(priced, result["metric"], "lambda")])


def _heading(result: dict[str, Any]) -> list[str]:
    return [
        f"{result['samples']} images, {result['accuracy_is']}; full precision reaches {result['full_precision']:.2%}",
        f"bits per block     {' '.join(map(str, result['bits']))} (those of the trace; other bits need the model)",
        f"exits after block  {' '.join(map(str, result['exit_blocks'][:-1]))}",
    ]
