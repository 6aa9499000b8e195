"""What a search on a trace gives back: one policy beside others, or a whole frontier. All simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from maqee.apq import Budget, Expected, Plan, SearchOptions, Trace, policy_figures
from maqee.apq.cost import full_precision_bops
from maqee.evaluation.recorded_trace import RecordedTrace
from maqee.tasks import tasks


@dataclass(frozen=True, kw_only=True)
class TracePolicy:
    """A policy on the calibration images of a trace.

    Attributes:
        name: what it is.
        thresholds: of every exit.
        metric: mean score of an image.
        metric_name: what the task calls it.
        mean_exit: mean block after which images leave.
        exit_mass: share of the images that leaves at each exit and at full depth.
        bops: expected bit operations of an image.
        share_of_full_precision: those, of the same model in full precision at full depth, without early heads.
        ms: expected milliseconds of an image, where measured time is the cost.
    """

    name: str
    thresholds: tuple[float, ...]
    metric: float
    metric_name: str
    mean_exit: float
    exit_mass: tuple[float, ...]
    bops: float
    share_of_full_precision: float
    ms: float | None = None

    @classmethod
    def of(cls, trace: Trace, name: str, thresholds: Sequence[float]) -> TracePolicy:
        """Measure a policy on a trace."""
        figures = policy_figures(trace, thresholds)
        return cls(
            name=name,
            thresholds=tuple(thresholds),
            metric=round(figures.metric, 6),
            metric_name=tasks[trace.task].score_name,
            mean_exit=round(figures.mean_exit, 4),
            exit_mass=tuple(round(share, 6) for share in figures.exit_mass),
            bops=figures.bops,
            share_of_full_precision=figures.bops / full_precision_bops(trace.parts, trace.depth),
            ms=figures.ms,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; the metric stands under its own name."""
        return {
            "name": self.name,
            "thresholds": list(self.thresholds),
            self.metric_name: self.metric,
            "mean_exit": self.mean_exit,
            "exit_mass": list(self.exit_mass),
            "bops": self.bops,
            "share_of_full_precision": self.share_of_full_precision,
            **({} if self.ms is None else {"ms": self.ms}),
        }


@dataclass(frozen=True, kw_only=True)
class Controlled:
    """The paper's first protocol: all thresholds of a plan moved by one offset, to the cheapest that reaches a metric.

    Attributes:
        asked: the metric.
        offset: what was added to every threshold.
    """

    asked: float
    offset: float


@dataclass(frozen=True, kw_only=True)
class TraceSearch:
    """The policy that was found, beside the plan's and full depth.

    Attributes:
        recorded: the trace and its plan.
        solver: how thresholds were searched.
        objective: what the policy is the best for, in words.
        budget: what was asked for; where that was nothing, what is usual.
        options: of the search.
        found: the best policy.
        plan: the policy of the plan, where there is one.
        full_depth: nobody leaves early.
        expected: what thresholds chosen in the same way achieve on images that did not choose them, if known.
        controlled: of the paper's first protocol, what was asked and by how much thresholds moved.
    """

    recorded: RecordedTrace = field(repr=False)
    solver: str
    objective: str
    budget: Budget
    options: SearchOptions = field(repr=False)
    found: TracePolicy
    plan: TracePolicy | None
    full_depth: TracePolicy
    expected: Expected | None = None
    controlled: Controlled | None = None

    @property
    def rows(self) -> tuple[TracePolicy, ...]:
        """All policies, the one that was found first."""
        return tuple(row for row in (self.found, self.plan, self.full_depth) if row is not None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee search --json` prints them."""
        trace = self.recorded.trace
        needed = self.budget.needed_metric(trace.float_metric, trace.full_metric)
        values = about_trace(trace, self.solver) | {
            "objective": self.objective,
            "budget": {
                "max_bops": self.budget.max_bops,
                "max_ms": self.budget.max_ms,
                "min_metric": needed,
                "target_on": None if needed is None else self.budget.target_on,
            },
            "rows": [row.to_json() for row in self.rows],
            "expected": None if self.expected is None else asdict(self.expected),
        }
        return values if self.controlled is None else values | {"controlled": asdict(self.controlled)}

    def revised_plan(self) -> Plan:
        """The recorded plan with the thresholds that were found.

        A guarantee was about the old ones, so it does not come along.
        """
        plan = self.recorded.require_plan("and a trace does not know heads and method")
        return replace(
            plan,
            thresholds=self.found.thresholds,
            budget=replace(self.budget, average_bits=plan.budget.average_bits),
            got=policy_figures(self.recorded.trace, self.found.thresholds),
            options=self.options,
            expected=self.expected,
            guarantee=None,
        )


@dataclass(frozen=True, kw_only=True)
class TraceFrontier:
    """What accuracy costs at the bits of a trace.

    Attributes:
        recorded: the trace and its plan.
        solver: how thresholds were searched.
        metrics: metrics asked for, and the cheapest policy that reaches each.
        metrics_not_reached: metrics that no policy reaches at these bits.
        lambdas: prices of cost, and the best policy at each.
    """

    recorded: RecordedTrace = field(repr=False)
    solver: str
    metrics: tuple[tuple[float, TracePolicy], ...]
    metrics_not_reached: tuple[float, ...]
    lambdas: tuple[tuple[float, TracePolicy], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee search --frontier --json` prints them."""
        return about_trace(self.recorded.trace, self.solver) | {
            "metrics": [{"asked": asked, **policy.to_json()} for asked, policy in self.metrics],
            "metrics_not_reached": list(self.metrics_not_reached),
            "lambdas": [{"lambda_outer": price, **policy.to_json()} for price, policy in self.lambdas],
        }


def about_trace(trace: Trace, solver: str) -> dict[str, Any]:
    """What figures of a trace are figures of."""
    return {
        "samples": trace.samples,
        "task": trace.task,
        "metric": tasks[trace.task].score_name,
        "model": trace.model,
        "bits": trace.bits.to_json(),
        "exit_blocks": list(trace.exit_blocks),
        "solver": solver,
        "accuracy_is": "simulated, on calibration images",
        "full_precision": round(trace.float_metric, 6),
    }
