"""Other thresholds for a recorded trace, in seconds and without the model.

A trace is one allocation: bits cannot be changed here, because what other bits do to confidences is not in it.
`maqee compress` changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, overload

from maqee.apq import (
    Budget,
    Plan,
    SearchOptions,
    Trace,
    choose_policy,
    choose_thresholds,
    controlled_performance,
    lambda_frontier,
    least_cost_problem,
    offset_sweep,
    policy_figures,
)
from maqee.apq.exact import check_exits
from maqee.apq.held_out import expected_choice
from maqee.errors import MaqeeError
from maqee.evaluation.recorded_trace import RecordedTrace, open_trace
from maqee.evaluation.trace_results import Controlled, TraceFrontier, TracePolicy, TraceSearch
from maqee.policy import NEVER

DROPS = (0.0, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.026, 0.035, 0.05, 0.07, 0.1)  # of the full-precision metric
LAMBDAS = (0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@overload
def search(
    trace: Trace | str | Path,
    *,
    budget: Budget | None = None,
    solver: str = "coordinate",
    objective: Literal["direct", "paper"] | None = None,
    lambda_outer: float = 0.5,
    against: Plan | str | Path | None = None,
    controlled: float | None = None,
    frontier: Literal[False] = False,
) -> TraceSearch: ...


@overload
def search(
    trace: Trace | str | Path,
    *,
    budget: Budget | None = None,
    solver: str = "coordinate",
    objective: Literal["direct", "paper"] | None = None,
    lambda_outer: float = 0.5,
    against: Plan | str | Path | None = None,
    controlled: float | None = None,
    frontier: bool,
) -> TraceSearch | TraceFrontier: ...


def search(
    trace: Trace | str | Path,
    *,
    budget: Budget | None = None,
    solver: str = "coordinate",
    objective: Literal["direct", "paper"] | None = None,
    lambda_outer: float = 0.5,
    against: Plan | str | Path | None = None,
    controlled: float | None = None,
    frontier: bool = False,
) -> TraceSearch | TraceFrontier:
    """Choose thresholds again at the bits of a trace, without the model; all figures are simulated.

    Args:
        trace: a trace, its file, or a folder written by `maqee compress`.
        budget: the most cost or the least metric; bits stay as they are. A drop that counts from what the quantized
            model can reach counts from full depth at these bits, and so does the point that is allowed where nothing
            is asked.
        solver: "coordinate" (the paper's), or "exact": the best of all candidates. That is a choice by the samples at
            hand alone, so that a metric must be asked for there too (target_on="calibration").
        objective: "direct", what the budget says and nothing else; or "paper", its J. Left out, the plan's own.
        lambda_outer: price of cost in J.
        against: a plan of the same model and bits to compare with; left out, the one that lies beside the trace.
        controlled: the paper's first protocol instead of a search: one offset is added to all thresholds of the plan,
            and the cheapest policy is taken whose metric is at least this.
        frontier: many policies instead of one: the cheapest for each of several metrics, the best for several prices.
    """
    budget = budget or Budget()
    limited = not budget.asks_for_nothing
    if frontier and (limited or controlled is not None):
        raise MaqeeError(
            "frontier: many policies are shown, so that nothing can be asked of one: leave out max_bops, min_metric, "
            "max_drop and the controlled metric."
        )
    if controlled is not None and limited:
        raise MaqeeError("controlled: the metric to reach is asked for here: leave out max_bops, min_metric, max_drop.")
    recorded = open_trace(trace, against)
    if frontier:
        return find_frontier(recorded, solver)
    if controlled is not None:
        return move_together(recorded, controlled)
    return find_thresholds(recorded, budget, recorded.options(solver, lambda_outer, objective))


def find_thresholds(recorded: RecordedTrace, budget: Budget, options: SearchOptions) -> TraceSearch:
    """The best policy within a budget, beside the plan's and full depth."""
    trace, scales, budget = recorded.trace, recorded.scales(options), budget.or_usual(options)
    budget.check_unit(timed=trace.exit_ms is not None)
    if budget.like is not None:
        raise MaqeeError("like: what uniform widths cost needs the model: say the cost itself (max_bops).")
    exact = options.last_search == "exact"
    if exact:
        check_exits(trace.exits)
        if budget.asks_for_metric and budget.target_on == "expected":
            raise MaqeeError(
                "solver: exact looks at the samples at hand alone: ask for the metric there too (target_on), on "
                "calibration."
            )
    start = None if recorded.plan is None else recorded.plan.thresholds
    choice = expected_choice(trace, budget, scales, options, start)
    found = choose_policy(trace, budget, scales, options, start, exact) if exact else choice.found
    budget.check_met(found.excess, policy_figures(trace, found.thresholds))
    plan, full_depth = _beside(recorded)
    return TraceSearch(
        recorded=recorded,
        solver="exact" if exact else "coordinate",
        objective=_aim(budget, options, recorded.score_name),
        budget=budget,
        options=options,
        found=TracePolicy.of(trace, "found", found.thresholds),
        plan=plan,
        full_depth=full_depth,
        expected=choice.expected,
    )


def move_together(recorded: RecordedTrace, metric: float) -> TraceSearch:
    """Controlled performance: the cheapest offset of all thresholds of the plan that reaches a metric."""
    if not 0 <= metric <= 1:
        raise MaqeeError(f"controlled: {metric} must be from 0 to 1.")
    plan = recorded.require_plan("whose thresholds could be moved")
    point = controlled_performance(recorded.trace, plan.thresholds, metric)
    if point is None:
        most = max(place.figures.metric for place in offset_sweep(recorded.trace, plan.thresholds))
        raise MaqeeError(
            f"controlled: no offset of the plan's thresholds reaches {metric}: the most that one reaches is {most:.4f}."
        )
    row, full_depth = _beside(recorded)
    return TraceSearch(
        recorded=recorded,
        solver="offset",
        objective="least expected cost, all thresholds of the plan moved by one offset",
        budget=Budget(min_metric=metric, target_on="calibration"),
        options=plan.options,
        found=TracePolicy.of(recorded.trace, "found", point.thresholds),
        plan=row,
        full_depth=full_depth,
        controlled=Controlled(asked=metric, offset=point.setting),
    )


def find_frontier(
    recorded: RecordedTrace, solver: str, drops: Sequence[float] = DROPS, lambdas: Sequence[float] = LAMBDAS
) -> TraceFrontier:
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
            metrics.append((round(full - drop, 6), TracePolicy.of(trace, "", found.thresholds)))
    points = lambda_frontier(trace, lambdas, scales, options, exact)
    return TraceFrontier(
        recorded=recorded,
        solver=solver,
        metrics=tuple(metrics),
        metrics_not_reached=tuple(missed),
        lambdas=tuple((point.setting, TracePolicy.of(trace, "", point.thresholds)) for point in points),
    )


def _aim(budget: Budget, options: SearchOptions, score: str) -> str:
    """What the policy is the best for, in words."""
    if budget.asks_for_metric:
        return "least expected cost"
    if budget.max_cost is not None and options.objective == "direct":
        return f"best {score} within the {'BOPs' if budget.max_ms is None else 'milliseconds'}"
    return f"least J at lambda_outer {options.lambda_outer:g}"


def _beside(recorded: RecordedTrace) -> tuple[TracePolicy | None, TracePolicy]:
    """What a new policy is compared with: the plan's, where there is one, and full depth."""
    trace, plan = recorded.trace, recorded.plan
    old = None if plan is None else TracePolicy.of(trace, "plan", plan.thresholds)
    return old, TracePolicy.of(trace, "full depth", (NEVER,) * trace.exits)
