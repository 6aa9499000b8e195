"""Figures of a compressed model on test images. All are simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from maqee.apq import BitSettings, Plan, Trace, choose_thresholds, exit_costs, least_cost_problem
from maqee.apq.smoothing import smoothed
from maqee.data import ImageSet, open_split
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.evaluation.protocols import both_protocols
from maqee.evaluation.record import exit_rows, measure_policies
from maqee.evaluation.results import Evaluation, ExitFigures, PolicyFigures
from maqee.evaluation.trace_search import DROPS
from maqee.exits import EarlyExitModel
from maqee.policy import NEVER, Policy
from maqee.runs import TRACE, require_data
from maqee.runtime.loading import load
from maqee.tasks import Task

STANDARD_THRESHOLDS = (0.6, 0.7, 0.8, 0.9, NEVER)


def evaluate_compressed(
    run: Path,
    data_root: Path | None = None,
    split: str = "test",
    device: str | None = None,
    controlled: float | None = None,
) -> Evaluation:
    """The plan's policy by both protocols, every exit, and shared thresholds on the same quantized model.

    The arguments are those of `maqee.evaluate`.
    """
    ready = load(run).to(pick_device(device))
    plan = ready.plan
    data = open_split(require_data(run, path=data_root), ready.model.backbone, split)
    trace = Trace.load(run / TRACE)
    both = both_protocols(trace, plan.thresholds, trace.full_metric if controlled is None else controlled)
    wanted, policies = frontier_policies(trace)
    exits, rows = measure_quantized(ready.model, plan.bits, data, ready.task, [*both.policies, *policies])
    standard, moved = both.sort_out(rows)
    rows = rows[len(both.policies) :]
    frontier = [replace(row, calibration_target=round(target, 6)) for row, target in zip(rows, wanted, strict=False)]
    recovered = any(step.kind == "recovery" and step.accepted for step in plan.history)
    return Evaluation(
        run=run.name,
        data=data.name,
        images=len(data),
        task=plan.task,
        metric=ready.task.metric_name,
        seed=plan.seed,
        exits=tuple(exits),
        policies=tuple(rows[len(policies) :]),
        plan=standard,
        controlled=moved,
        controlled_target=round(both.target, 6),
        frontier=tuple(frontier[: len(policies)]),
        facts={
            **about_plan(plan),
            "score": ready.task.score_name,
            "accuracy_is": "simulated",
            "recovered": recovered,
            "full_precision_on_calibration": round(trace.float_metric, 6),
        },
        environment=describe_environment(),
    )


def about_plan(plan: Plan) -> dict[str, object]:
    """What figures of a compressed model are figures of."""
    return {
        "method": plan.method,
        "bits": plan.bits.to_json(),
        "weight_bits": round(plan.got.weighted_bits, 6),
        "activation_bits": None if plan.got.activation_bits is None else round(plan.got.activation_bits, 6),
    }


def frontier_policies(trace: Trace) -> tuple[list[float], list[Policy]]:
    """The cheapest policies that lose at most so much of a full-depth score on calibration samples, smoothed.

    Of the full-precision model's score, which is what users care for, and of the quantized model's own, which may lie
    far below it.

    Returns:
        The scores asked for, descending, and the policies; scores that the quantized model does not reach are left
        out, and so are those that no other policy comes of.
    """
    if not trace.exits:
        return [], []
    cost = float(exit_costs(trace)[-1])
    found: dict[tuple[float, ...], float] = {}
    judged = smoothed(trace)
    for score in sorted(
        {base - drop for base in (trace.float_metric, trace.full_metric) for drop in DROPS}, reverse=True
    ):
        choice = choose_thresholds(least_cost_problem(judged, score, cost), (0.8,) * trace.exits)
        if choice.excess <= 0:
            found.setdefault(choice.thresholds, score)
    return list(found.values()), [Policy(thresholds) for thresholds in found]


def measure_quantized(
    model: EarlyExitModel, bits: BitSettings, data: ImageSet, task: Task, policies: Sequence[Policy] = ()
) -> tuple[list[ExitFigures], list[PolicyFigures]]:
    """Every exit's metric; figures of the policies that were asked for, and then, with exits, of shared thresholds."""
    shared = [Policy.same(threshold, model.num_exits) for threshold in STANDARD_THRESHOLDS] if model.num_exits else []
    measured, rows = measure_policies(model, data, task, bits, [*policies, *shared], show=True)
    return exit_rows(model, measured, task), rows
