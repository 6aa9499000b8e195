"""Results as plain text tables."""

from __future__ import annotations

from typing import Any

from maqee.report.bit_table import bit_lines, bit_words

_FACTS = {"block", "head", "score", "loss", "confidence", "macs"}  # of an exit, beside its metrics


def evaluation_table(result: dict[str, Any]) -> str:
    """What `maqee eval` shows of a trained or a compressed run."""
    if "plan" in result:
        return compressed_table(result)
    return exit_table(result) + (f"\n\n{policy_table(result)}" if result["policies"] else "")


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
        name = _threshold(row)
        mass = " ".join(f"{share:.0%}" for share in row["exit_mass"])
        lines.append(
            f"{name:<18}{row[metric]:>10.2%}{row['mean_exit']:>11.2f}{row['macs']:>12.3e}"
            f"{row['macs'] / full:>8.1%}   {mass}"
        )
    return "\n".join(lines)


def expected_words(values: dict[str, Any], score: str) -> str:
    """What thresholds achieve on images that did not choose them, in words."""
    error = "" if values.get("metric_error") is None else f" ± {values['metric_error']:.2%}"
    return (
        f"{score} {values['metric']:.2%}{error} at mean exit {values['mean_exit']:.2f}, {values['bops']:.3e} BOPs "
        f"(expected: cross-validated in {values['folds']} parts)"
    )


def compressed_table(result: dict[str, Any]) -> str:
    """What a plan does, beside shared thresholds on the same quantized model."""
    lines = [f"{result['data']}, {result['images']} images, {result['method']}, {result['accuracy_is']}"]
    lines += [*bit_lines(result["bits"]), *(["recovered"] if result["recovered"] else [])]
    lines += policy_lines([("plan", result["plan"]), *_controlled(result)], result["metric"])
    lines += _not_reached(result, result.get("controlled_target"))
    if not result["shared_thresholds"]:
        return "\n".join(lines)
    lines.append(f"least cost for {result['score']} on calibration images of")
    frontier = [(f"  {row['calibration_target']:.2%}", row) for row in result["frontier"]]
    lines += policy_lines(frontier, result["metric"])[1:]
    lines.append("one threshold for all exits")
    shared = [(f"  {_threshold(row)}", row) for row in result["shared_thresholds"]]
    return "\n".join([*lines, *policy_lines(shared, result["metric"])[1:]])


def baseline_table(result: dict[str, Any]) -> str:
    """Methods with the same exits, at shared thresholds."""
    lines = [f"{result['data']}, {result['images']} images, model {result['model']}"]
    for row in result["rows"]:
        bits = "" if row["bits"] is None else f", bits {bit_words(row['bits'])}"
        exits = "  ".join(f"{entry['block']}: {entry[row['metric']]:.2%}" for entry in row["exits"])
        lines += ["", f"{row['method']}{bits} ({row['accuracy_is']}); exits {exits}"]
        shared = [(_threshold(entry), entry) for entry in row["shared_thresholds"]]
        standard = [("standard", row["standard"]), *_controlled(row)] if "standard" in row else []
        lines += policy_lines([*standard, *shared], row["metric"])
        lines += _not_reached(row, result.get("controlled_target"))
    return "\n".join(lines)


def _controlled(result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The policy of controlled performance, if there is one; files from before it was measured have none."""
    return [("controlled", result["controlled"])] if result.get("controlled") is not None else []


def _not_reached(result: dict[str, Any], target: float | None) -> list[str]:
    if target is None or result.get("controlled") is not None:
        return []
    return [f"controlled  N/A: no offset of all thresholds reaches {target:.2%} on calibration images"]


def search_table(result: dict[str, Any]) -> str:
    """The policy found, beside the plan's and full depth."""
    thresholds = result["rows"][0]["thresholds"]
    lines = _search_heading(result)
    lines.append(f"thresholds           {' '.join(map(threshold_words, thresholds))} ({result['objective']})")
    lines += policy_lines([(row["name"], row) for row in result["rows"]], result["metric"], "policy")
    if result["expected"] is not None:
        lines.append(f"on other images      {expected_words(result['expected'], result['metric'])}")
    return "\n".join(lines)


def frontier_table(result: dict[str, Any]) -> str:
    """The cheapest policies by metric, and the best ones by price."""
    lines = [*_search_heading(result), "", "least cost, by the metric asked for"]
    asked = [(f"  {row['asked']:.2%}", row) for row in result["metrics"]]
    lines += policy_lines(asked, result["metric"], "at least")
    if result["metrics_not_reached"]:
        missed = ", ".join(f"{metric:.2%}" for metric in result["metrics_not_reached"])
        lines.append(f"  not reached at these bits: {missed}")
    lines += ["", "least J, by the price of cost"]
    priced = [(f"  {row['lambda_outer']:g}", row) for row in result["lambdas"]]
    return "\n".join([*lines, *policy_lines(priced, result["metric"], "lambda")])


def _search_heading(result: dict[str, Any]) -> list[str]:
    return [
        f"{result['samples']} images, {result['accuracy_is']}; full precision reaches {result['full_precision']:.2%}",
        *bit_lines(result["bits"]),
        "                     (those of the trace; other bits need the model)",
        f"exits after block    {' '.join(map(str, result['exit_blocks'][:-1]))}",
    ]


def demo_table(result: dict[str, Any]) -> str:
    """Full precision, uniform bits and a plan side by side."""
    plan, one = result["plan"], 1 / result["images"]
    lines = [
        f"{result['data']}, {result['images']} images (one is {one:.2%}); quantization is {result['accuracy_is']}",
        f"{'':<31}{'accuracy':>9}{'calibration':>13}{'mean exit':>11}{'BOPs':>12}{'of FP32':>9}   leaving at each exit",
    ]
    for row in result["rows"]:
        mass = " ".join(f"{share:.0%}" for share in row["exit_mass"])
        accuracy = f"{row['accuracy']:>9.2%}{row['calibration_accuracy']:>13.2%}"
        figures = f"{accuracy}{row['mean_exit']:>11.2f}{row['bops']:>12.3e}"
        lines.append(f"{row['name']:<31}{figures}{row['share_of_full_precision']:>9.2%}   {mass}")
    return "\n".join(
        [
            *lines,
            "",
            *bit_lines(plan["bits"]),
            f"MAQEE chose these bits and thresholds {' '.join(map(threshold_words, plan['thresholds']))}: the least "
            "cost it found with",
            f"{result['asked_on_calibration']:.2%} on {result['calibration_images']} calibration images, where full "
            f"precision has {result['full_precision_on_calibration']:.2%}.",
            f"On images that did not choose thresholds, cross-validation expects {result['expected_elsewhere']:.2%}.",
        ]
    )


def policy_lines(rows: list[tuple[str, dict[str, Any]]], metric: str, first: str = "threshold") -> list[str]:
    """A heading and one line for each named policy."""
    timed = any("ms" in row for _, row in rows)  # measured time is the cost
    time = f"{'ms':>9}" if timed else ""
    lines = [f"{first:<12}{metric:>10}{'mean exit':>11}{time}{'BOPs':>12}{'of FP32':>9}   leaving at each exit"]
    for name, row in rows:
        mass = " ".join(f"{share:.0%}" for share in row["exit_mass"])
        time = f"{row['ms']:>9.3g}" if timed else ""
        figures = f"{row[metric]:>10.2%}{row['mean_exit']:>11.2f}{time}{row['bops']:>12.3e}"
        lines.append(f"{name:<12}{figures}{row['share_of_full_precision']:>9.2%}   {mass}")
    return lines


def threshold_words(threshold: float) -> str:
    """The threshold of one exit as a person reads it."""
    return "closed" if threshold > 1 else f"{threshold:.2f}"


def _threshold(row: dict[str, Any]) -> str:
    """The threshold that all exits share; with all of them closed nobody ever leaves early."""
    threshold = row["thresholds"][0]
    return "never" if threshold > 1 else threshold_words(threshold)


def _width(name: str) -> int:
    return max(10, len(name) + 2)
