"""Other thresholds for a recorded trace, in seconds and without the model.

A trace is one allocation: bits cannot be changed here, because what other bits do to confidences is not in it.
`maqee compress` changes them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from maqee.apq import (
    BitSettings,
    Budget,
    Expected,
    Plan,
    Point,
    Scales,
    SearchOptions,
    Trace,
    bops,
    choose_policy,
    choose_thresholds,
    expect,
    lambda_frontier,
    least_cost_problem,
    measure_scales,
    policy_figures,
)
from maqee.apq.exact import check_exits
from maqee.errors import MaqeeError
from maqee.io import read_json
from maqee.policy import NEVER
from maqee.runs import PLAN, SEEN, SOURCE, TRACE
from maqee.tasks import tasks

logger = logging.getLogger(__name__)

DROPS = (0.0, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.026, 0.035, 0.05, 0.07, 0.1)  # of the full-precision metric
LAMBDAS = (0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class RecordedTrace:
    """A trace, and the plan it belongs to where there is one.

    Attributes:
        trace: the calibration pass.
        plan: what was found on it before: its scales are used, so that an equal request finds the plan again.
        place: where the trace lies.
    """

    trace: Trace
    plan: Plan | None
    place: Path

    def options(self, solver: str, lambda_outer: float) -> SearchOptions:
        """The plan's own options, or the usual ones, with this solver and price."""
        chosen = SearchOptions.for_solver(solver, lambda_outer=lambda_outer)
        if self.plan is None:
            return chosen
        return replace(
            self.plan.options,
            lambda_outer=lambda_outer,
            first_move=chosen.first_move,
            last_search=chosen.last_search,
        )

    def scales(self, options: SearchOptions) -> Scales:
        """The plan's, or what the trace itself gives."""
        return measure_scales(self.trace, self.trace, options) if self.plan is None else self.plan.scales


def open_trace(path: Path, against: Path | None = None) -> RecordedTrace:
    """Read a trace, and the plan beside it or another one to compare with.

    Args:
        path: a trace, or a folder written by `maqee compress`.
        against: a plan, or such a folder, of the same model at the same bits.
    """
    place = path / TRACE if path.is_dir() else path
    trace = Trace.load(place)
    _warn_of_seen(place.parent)
    beside = place.parent / PLAN
    if against is None and not beside.is_file():
        return RecordedTrace(trace, None, place)
    chosen = beside if against is None else against / PLAN if against.is_dir() else against
    plan = Plan.load(chosen)
    check_same(plan, trace, str(chosen), str(place))
    return RecordedTrace(trace, plan, place)


def _warn_of_seen(folder: Path) -> None:
    """Repeat what `maqee compress` said about images that the model was trained on."""
    seen = read_json(folder / SOURCE).get(SEEN) if (folder / SOURCE).is_file() else None
    if isinstance(seen, int) and seen > 0:
        logger.warning(
            "The model of %s was trained on %d of its calibration images: thresholds may be too bold", folder, seen
        )


def check_same(plan: Plan, trace: Trace, plan_name: str, trace_name: str) -> None:
    """Complain if a plan and a trace cannot be compared: another model, other exits, another task or other bits."""
    pairs = {
        "model": (plan.checkpoint, trace.model, "take both from one model"),
        "task": (plan.task, trace.task, "take both from one task"),
        "exits": (list(plan.exit_blocks), list(trace.exit_blocks[:-1]), "take both from one model"),
        "bits": (
            _all_bits(plan.bit_settings),
            _all_bits(trace.bits),
            "a trace is of one allocation, so give the trace that was recorded with the plan",
        ),
    }
    for what, (ours, theirs, remedy) in pairs.items():
        if ours != theirs:
            raise MaqeeError(
                f"{plan_name} and {trace_name} cannot be compared, their {what} differ ({ours} and {theirs}): {remedy}."
            )


def _all_bits(bits: BitSettings) -> list[Any]:
    return [list(bits.weights), bits.activations, bits.patch, bits.classifier, bits.head, bits.merge]


def find_thresholds(recorded: RecordedTrace, budget: Budget, solver: str, lambda_outer: float) -> dict[str, Any]:
    """The best policy within a budget, beside the plan's and full depth; all simulated, on calibration images."""
    trace, options = recorded.trace, recorded.options(solver, lambda_outer)
    scales, exact = recorded.scales(options), solver == "exact"
    if exact:
        check_exits(trace.exits)
    start = None if recorded.plan is None else recorded.plan.thresholds
    found = choose_policy(trace, budget, scales, options, start, exact)
    budget.check_met(found.excess, policy_figures(trace, found.thresholds))
    rows = [policy_row(trace, "found", found.thresholds)]
    if recorded.plan is not None:
        rows.append(policy_row(trace, "plan", recorded.plan.thresholds))
    rows.append(policy_row(trace, "full depth", (NEVER,) * trace.exits))
    return _about(recorded, solver) | {
        "objective": "expected cost" if budget.asks_for_metric else f"J at lambda_outer {lambda_outer:g}",
        "budget": {"max_bops": budget.max_bops, "min_metric": budget.needed_metric(trace.float_metric)},
        "rows": rows,
        "expected": None if (expected := expect(trace, budget, scales, options)) is None else asdict(expected),
    }


def find_frontier(
    recorded: RecordedTrace, solver: str, drops: Sequence[float] = DROPS, lambdas: Sequence[float] = LAMBDAS
) -> dict[str, Any]:
    """What accuracy costs: the cheapest policy for each of several metrics, and the best one at several prices."""
    trace, exact = recorded.trace, solver == "exact"
    if exact:
        check_exits(trace.exits)
    full = trace.float_metric
    options = recorded.options(solver, 0.5)
    scales = recorded.scales(options)
    metrics, missed = [], []
    for drop in drops:
        problem = least_cost_problem(trace, full - drop, scales.cost)
        found = choose_thresholds(problem, (options.start,) * trace.exits, exact=exact)
        if found.excess > 0:
            missed.append(round(full - drop, 6))
        else:
            metrics.append({"asked": round(full - drop, 6), **policy_row(trace, "", found.thresholds)})
    points: list[Point] = lambda_frontier(trace, lambdas, scales, options, exact)
    return _about(recorded, solver) | {
        "metrics": metrics,
        "metrics_not_reached": missed,
        "lambdas": [{"lambda_outer": point.setting, **policy_row(trace, "", point.thresholds)} for point in points],
    }


def policy_row(trace: Trace, name: str, thresholds: Sequence[float]) -> dict[str, Any]:
    """A policy's figures on a trace."""
    figures = policy_figures(trace, thresholds)
    full = bops(trace.parts, BitSettings.uniform(32, 32, trace.depth))
    return {
        "name": name,
        "thresholds": list(thresholds),
        tasks[trace.task].score_name: round(figures.metric, 6),
        "mean_exit": round(figures.mean_exit, 4),
        "exit_mass": [round(share, 6) for share in figures.exit_mass],
        "bops": figures.bops,
        "share_of_full_precision": figures.bops / full,
    }


def revised_plan(
    recorded: RecordedTrace, budget: Budget, solver: str, lambda_outer: float, found: dict[str, Any]
) -> Plan:
    """The recorded plan with the thresholds that `find_thresholds` found.

    A guarantee was about the old ones, so it does not come along.
    """
    if recorded.plan is None:
        raise MaqeeError(
            f"{recorded.place} lies beside no plan, and a trace does not know heads and method: give --against PLAN."
        )
    thresholds = tuple(found["rows"][0]["thresholds"])
    plan = recorded.plan
    return replace(
        plan,
        thresholds=thresholds,
        budget=replace(budget, average_bits=plan.budget.average_bits),
        got=policy_figures(recorded.trace, thresholds),
        options=recorded.options(solver, lambda_outer),
        expected=None if found["expected"] is None else Expected(**found["expected"]),
        guarantee=None,
    )


def _about(recorded: RecordedTrace, solver: str) -> dict[str, Any]:
    trace = recorded.trace
    return {
        "samples": trace.samples,
        "task": trace.task,
        "metric": tasks[trace.task].score_name,
        "model": trace.model,
        "bits": list(trace.bits.weights),
        "exit_blocks": list(trace.exit_blocks),
        "solver": solver,
        "accuracy_is": "simulated, on calibration images",
        "full_precision": round(trace.float_metric, 6),
    }
