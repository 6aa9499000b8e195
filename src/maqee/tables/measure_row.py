"""Measure one run of a row: choose thresholds on calibration images, then look up what they do on the test images.

Both protocols of the paper come from one pass over these. *Standard configuration* is the row's own thresholds.
*Controlled performance* adds one offset to all of them: the cheapest that reaches the target on calibration images.
Other offsets, the same ones for every run, are the row's *curve*: what its accuracy costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maqee.apq import Plan, Trace, moved_thresholds
from maqee.apq.held_out import expected_choice
from maqee.apq.risks import measure_scales
from maqee.compression.baseline_model import best_shared, wanted
from maqee.environment import describe_environment
from maqee.evaluation.protocols import Protocols, both_protocols
from maqee.evaluation.results import PolicyFigures
from maqee.io import read_json, write_json
from maqee.policy import Policy
from maqee.runs import PLAN, TRACE
from maqee.tables.cases import Case
from maqee.tables.prepare import read_calibration
from maqee.tables.tested import read_test, run_test
from maqee.tables.work import MODEL, MODELS, PREPARED, ROW, Measuring, Place

OFFSETS = (-0.4, -0.3, -0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)  # of the curve, from bold to careful


def measure_row(case: Case, row: Measuring, record: str | None, folder: Path, place: Place) -> None:
    """Write the figures of one run, from the model's pass over the test images or, without a record, from its own."""
    model_folder = place.root / MODELS / case.name / MODEL
    trace = Trace.load(model_folder / TRACE)
    thresholds = _thresholds(case, row, trace, model_folder, place)
    target = read_calibration(place.root / row.target)["full_depth"] if isinstance(row.target, str) else row.target
    both = Protocols(Policy(thresholds), None, 0.0) if target is None else both_protocols(trace, thresholds, target)
    policies = [*both.policies, *(Policy(moved_thresholds(thresholds, offset)) for offset in OFFSETS)]
    if record is not None:
        facts, figures = read_test(place.root / record, trace, policies)
    else:
        facts, figures = run_test(case, place, trace, policies)
    standard, controlled = both.sort_out(figures[: len(both.policies)])
    metric = facts["metric"]
    write_json(
        folder / ROW,
        {
            "row": row.name,
            "seed": row.seed,
            "model": case.name,
            **facts,
            "execution": "simulated",
            **_figures(standard, metric),
            "curve": _curve(figures[len(both.policies) :], metric) if thresholds else None,
            "exit_mass": list(standard.exit_mass),
            "training_kept": _training_kept(case, model_folder),
            "search_images": _search_images(case, trace, model_folder),
            "bits": trace.bits.to_json(),
            "weight_bits": _mean_bits(trace, 0),
            "activation_bits": _mean_bits(trace, 1),
            "calibration": read_calibration(place.root / MODELS / case.name),
            "model_revision": read_json(place.root / MODELS / case.name / PREPARED)["environment"]["revision"],
            "target": target,
            "controlled": None if controlled is None else _figures(controlled, metric),
            "environment": describe_environment() | {"revision": place.revision},
        },
    )


def _thresholds(case: Case, row: Measuring, trace: Trace, folder: Path, place: Place) -> tuple[float, ...]:
    """The row's own thresholds, from calibration images alone."""
    if row.thresholds_from is not None:
        return tuple(read_json(place.root / row.thresholds_from / ROW)["thresholds"])
    if not trace.exits:
        return ()
    if not isinstance(row.chosen, str):
        return (row.chosen,) * trace.exits
    budget, how = case.config.budget, case.config.search
    if row.chosen == "shared":
        return best_shared([trace], budget, how)[0].thresholds
    if case.kind == "search":
        return Plan.load(folder / PLAN).thresholds
    asked = wanted(budget, how, trace.float_metric, trace.full_metric)
    return expected_choice(trace, asked, measure_scales(trace, trace, how), how).found.thresholds


def _training_kept(case: Case, folder: Path) -> bool | None:
    """Whether the model is what training made of it; a search takes training back that makes it worse. None without."""
    if not case.config.options.recovery_steps:
        return None
    if case.kind != "search":
        return True
    return any(step.kind == "recovery" and step.accepted for step in Plan.load(folder / PLAN).history)


def _search_images(case: Case, trace: Trace, folder: Path) -> int | None:
    """How many images the search has run through the quantized network; None where there was none, or only swaps."""
    passes = Plan.load(folder / PLAN).passes if case.kind == "search" else None
    return None if passes is None else round(passes * trace.samples)


def _curve(policies: Sequence[PolicyFigures], metric: str) -> list[dict[str, float]]:
    return [
        {"offset": offset, "accuracy": policy.metrics[metric], "mean_exit": policy.mean_exit, "bops": policy.bops}
        for offset, policy in zip(OFFSETS, policies, strict=True)
    ]


def _figures(policy: PolicyFigures, metric: str) -> dict[str, Any]:
    return {
        "accuracy": policy.metrics[metric],
        "mean_exit": policy.mean_exit,
        "bops": policy.bops,
        "thresholds": list(policy.thresholds),
    }


def _mean_bits(trace: Trace, which: int) -> float:
    """Mean over the layers of blocks that have weights: of weights (0) or of activations (1)."""
    widths = [pair[which] for block in trace.bits.blocks for pair in block.linear]
    return round(sum(widths) / len(widths), 6)
