"""Folders as `maqee compress` writes them, made in no time: a trace with plausible numbers and a plan for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from maqee.apq import Budget, Expected, Plan, SearchOptions, Trace, measure_scales, policy_figures
from maqee.apq.records import Position, Step
from maqee.evaluation.kept_examples import KeptExample, KeptExamples, choose_examples, thumbnail
from maqee.io import write_json
from tests.apq.makers import make_trace

THRESHOLDS = (0.95, 0.9, 2.0)
SOURCE = {
    "data": {"data": "digits", "path": None, "holdout": None, "seed": 0},
    "model": "/somewhere/far/away/2-heads",
    "task": "classification",
    "environment": {"versions": {"maqee": "0.1.0"}, "hardware": {"cores": 2}, "revision": None},
}


def write_folder(folder: Path, trace: Trace | None = None, **changes: Any) -> Path:
    """A finished run; changes are those of its plan."""
    trace = make_trace() if trace is None else trace
    make_plan(trace, **changes).save(folder / "plan.json")
    trace.save(folder / "trace.safetensors")
    keep_pictures(trace, Plan.load(folder / "plan.json").thresholds).save(folder / "examples.json")
    write_json(folder / "source.json", SOURCE)
    write_json(folder / "request.json", {"choices": {"options": {"fit_images": 32, "recovery_steps": 0}}})
    return folder


def make_plan(trace: Trace, **changes: Any) -> Plan:
    """A plan at the bits of a trace that was found in four steps."""
    thresholds = changes.get("thresholds", THRESHOLDS[: trace.exits])
    figures = policy_figures(trace, thresholds)
    first = Position(trace.bits, (0.8,) * trace.exits, 0.01, 1.0, policy_figures(trace, (0.8,) * trace.exits))
    best = Position(trace.bits, thresholds, 0.0, 0.9, figures)
    values: dict[str, Any] = {
        "bits": trace.bits,
        "thresholds": thresholds,
        "exit_blocks": trace.exit_blocks[:-1],
        "exit_kinds": ("mlp",) * trace.exits,
        "method": "erq",
        "task": trace.task,
        "checkpoint": trace.model,
        "seed": 0,
        "versions": {"maqee": "0.1.0"},
        "budget": Budget(max_drop=0.02),
        "got": figures,
        "scales": measure_scales(trace, trace, SearchOptions()),
        "expected": Expected(figures.metric - 0.01, figures.bops * 1.1, figures.mean_exit, 5, 0.012, 10.0),
        "history": (
            Step("start", first, True, 0.01, 1.0),
            Step("exact", best, True, 0.0, 0.9, spent=1.0),
            Step("move", replace(best, objective=0.95), False, 0.0, 0.9, move="block 1 qkv 4/4 to 4/5"),
            Step("last", best, True, 0.0, 0.9),
        ),
    }
    return Plan(**(values | changes))


def keep_pictures(trace: Trace, thresholds: tuple[float, ...]) -> KeptExamples:
    """Grey squares, every third of them answered wrongly."""
    kept = [
        KeptExample(
            exit=choice.exit,
            place=choice.place,
            name=f"image {choice.sample}",
            confidence=float(trace.confidence[choice.sample, choice.exit]),
            score=float(number % 3 > 0),
            answer="cat <1>",
            truth="cat <1>" if number % 3 else "dog & co",
            picture=thumbnail(torch.full((8, 8, 1), choice.exit / 5)),
        )
        for number, choice in enumerate(choose_examples(trace, thresholds))
    ]
    return KeptExamples(thresholds=thresholds, examples=tuple(kept))
