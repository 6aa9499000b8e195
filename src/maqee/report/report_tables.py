"""The tables of a report: results, bits, settings, and runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, NamedTuple

from maqee.apq import Figures, SearchOptions
from maqee.report.bit_table import pair_words
from maqee.report.plan_table import first_widths_name
from maqee.report.report_content import RunContent
from maqee.report.report_words import asked, bits_words, verdict
from maqee.runs import SEEN
from maqee.widths import FULL, LAYERS


class Row(NamedTuple):
    """A line of the table of what was asked and what came of it."""

    name: str
    score: str
    cost: str
    mean_exit: str
    note: str


def result_rows(run: RunContent) -> list[Row]:
    """Full precision, the widths that the search began with, and the plan; all simulated."""
    plan, rows = run.plan, []
    if run.trace is not None and run.full_bops is not None:
        cost = "" if run.timed else f"{run.full_bops:.3e} BOPs (100%)"
        metric = f"{run.trace.float_metric:.2%}"
        rows.append(Row("full precision, full depth", metric, cost, f"{run.trace.depth:.2f}", "calibration images"))
    if run.full_depth is not None and run.exits:
        rows.append(_row(run, "the plan's bits, full depth", run.full_depth, "calibration images, simulated"))
    if plan.history and plan.history[0].kind == "start":
        first = plan.history[0].position
        missed = "; misses what is asked" if first.excess > 0 else ""
        rows.append(_row(run, first_widths_name(first), first.figures, f"calibration images, simulated{missed}"))
    rows.append(_row(run, "the plan", plan.got, "calibration images, which chose it, simulated"))
    if plan.expected is not None:
        found = plan.expected
        error = "" if found.metric_error is None else f" ± {found.metric_error:.2%}"
        spread = "" if found.bops_error is None else f" ± {found.bops_error:.1e}"
        share = "" if run.full_bops is None else f" ({found.bops / run.full_bops:.2%})"
        cost = f"{found.bops:.3e}{spread} BOPs{share}"
        note = f"new images: expected, cross-validated in {found.folds} parts, simulated"
        rows.append(Row("the plan", f"{found.metric:.2%}{error}", cost, f"{found.mean_exit:.2f}", note))
    return rows


def _row(run: RunContent, name: str, figures: Figures, note: str) -> Row:
    cost = figures.cost_words
    if run.full_bops is not None:
        cost += f" ({figures.bops / run.full_bops:.2%})"
    return Row(name, f"{figures.metric:.2%}", cost, f"{figures.mean_exit:.2f}", note)


def bit_rows(run: RunContent) -> list[tuple[str, list[str]]]:
    """Weight/activation bits: a row for each kind of layer, a cell for each block."""
    blocks = run.plan.bits.blocks
    return [(layer, [pair_words(block[place]) for block in blocks]) for place, layer in enumerate(LAYERS)]


def other_bits(run: RunContent) -> str:
    """Widths of what is in no block."""
    bits = run.plan.bits
    heads = " ".join(map(pair_words, bits.heads or (bits.head,)))
    words = f"Patch embedding {pair_words(bits.patch)}, classifier {pair_words(bits.classifier)}"
    words += f", exit heads {heads}" if run.exits else ""
    return (
        f"{words}. Where it says float, nothing is quantized." if FULL in (bits.patch, bits.classifier) else f"{words}."
    )


def settings(run: RunContent) -> list[tuple[str, str]]:
    """How the run came about, the important things first."""
    plan, options = run.plan, run.request.get("choices", {}).get("options", {})
    rows = [("task", plan.task)]
    if data := run.source.get("data", {}).get("data"):
        rows.append(("data", str(data)))
    if model := run.source.get("model"):
        rows.append(("model", "/".join(PurePath(str(model)).parts[-2:])))
    rows.append(("hash of the checkpoint", plan.checkpoint))
    rows.append(("quantization", f"{plan.method}, simulated in every figure here"))
    rows.append(("exits", ", ".join(_exit_words(run)) or "none"))
    rows.append(("calibration images", _image_words(run, options)))
    rows.append(("training at the end", _training_words(run, options)))
    rows.append(("seed", str(plan.seed)))
    changed = changed_options(plan.options)
    rows.append(("search options that are not the usual ones", ", ".join(changed) or "none"))
    environment = run.source.get("environment", {})
    versions = environment.get("versions") or plan.versions
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))))
    if hardware := environment.get("hardware"):
        rows.append(("hardware", ", ".join(f"{name} {value}" for name, value in sorted(hardware.items()))))
    if revision := environment.get("revision"):
        rows.append(("revision", str(revision)))
    return rows


def changed_options(options: SearchOptions) -> list[str]:
    """What is not as in `SearchOptions()`."""
    usual = asdict(SearchOptions())
    return [f"{name} {value}" for name, value in asdict(options).items() if value != usual[name]]


def _exit_words(run: RunContent) -> list[str]:
    pairs = zip(run.plan.exit_blocks, run.plan.exit_kinds, strict=True)
    return [f"after block {block} ({kind})" for block, kind in pairs]


def _image_words(run: RunContent, options: dict[str, Any]) -> str:
    words = ["number not known" if run.trace is None else f"{run.trace.samples} to choose by"]
    if (fitted := options.get("fit_images")) is not None:
        words.append(f"{fitted} others to fit grids")
    if seen := run.source.get(SEEN):
        words.append(f"{seen} of them were in the model's training set, so that thresholds may be too bold")
    return ", ".join(words)


def _training_words(run: RunContent, options: dict[str, Any]) -> str:
    steps = [step for step in run.plan.history if step.kind == "recovery"]
    if not steps:
        return "none"
    count = options.get("recovery_steps")
    words = "" if count is None else f"{count} steps, "
    return words + ("kept" if steps[-1].accepted else "not kept, because it made the plan worse")


def compared(runs: Sequence[RunContent]) -> list[tuple[str, list[str]]]:
    """Runs side by side: a row for each figure, a cell for each run."""
    rows: list[tuple[str, list[str]]] = [
        ("asked", [asked(run) for run in runs]),
        ("came of it", [verdict(run) or "nothing was asked for" for run in runs]),
        ("score", [run.score for run in runs]),
        ("on new images (expected, simulated)", [_expected(run) for run in runs]),
        ("on calibration images (simulated)", [f"{run.plan.got.metric:.2%}" for run in runs]),
        ("full precision", ["" if run.trace is None else f"{run.trace.float_metric:.2%}" for run in runs]),
        ("cost of an image", [run.plan.got.cost_words for run in runs]),
        ("of full precision", [_share(run) for run in runs]),
        ("mean exit", [f"{run.plan.got.mean_exit:.2f} of {run.plan.bits.depth}" for run in runs]),
        ("leaving at each exit", [" ".join(f"{share:.0%}" for share in run.plan.got.exit_mass) for run in runs]),
        ("bits on average", [bits_words(run.plan.got) for run in runs]),
        ("quantization", [run.plan.method for run in runs]),
        ("guarantee", ["none" if run.plan.guarantee is None else run.plan.guarantee.method for run in runs]),
    ]
    return rows


def _expected(run: RunContent) -> str:
    found = run.plan.expected
    if found is None:
        return "not known"
    return f"{found.metric:.2%}" + ("" if found.metric_error is None else f" ± {found.metric_error:.2%}")


def _share(run: RunContent) -> str:
    return "not known" if run.full_bops is None else f"{run.plan.got.bops / run.full_bops:.2%}"
