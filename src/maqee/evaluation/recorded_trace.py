"""A trace with the plan that it belongs to: what thresholds can be searched on without the model."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from maqee.apq import Plan, Scales, SearchOptions, Trace, measure_scales
from maqee.errors import MaqeeError
from maqee.io import read_json
from maqee.runs import PLAN, SEEN, SOURCE, TRACE
from maqee.tasks import tasks

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordedTrace:
    """A trace, and the plan it belongs to where there is one.

    Attributes:
        trace: the calibration pass.
        plan: what was found on it before: its scales are used, so that an equal request finds the plan again.
        place: where the trace lies; for one in memory, what to call it.
    """

    trace: Trace
    plan: Plan | None
    place: str

    def options(
        self, solver: str, lambda_outer: float, objective: Literal["direct", "paper"] | None = None
    ) -> SearchOptions:
        """The plan's own options, or the usual ones, with this solver, price and, if it is given, objective."""
        chosen = SearchOptions.for_solver(solver, lambda_outer=lambda_outer)
        own = SearchOptions() if self.plan is None else self.plan.options
        return replace(
            own,
            lambda_outer=lambda_outer,
            first_move=chosen.first_move,
            last_search=chosen.last_search,
            objective=objective or own.objective,
        )

    @property
    def score_name(self) -> str:
        """What the task calls the score of an image."""
        return tasks[self.trace.task].score_name

    def scales(self, options: SearchOptions) -> Scales:
        """The plan's, or what the trace itself gives."""
        return measure_scales(self.trace, self.trace, options) if self.plan is None else self.plan.scales

    def require_plan(self, why: str) -> Plan:
        """The plan; the user's error where there is none."""
        if self.plan is None:
            raise MaqeeError(f"{self.place} lies beside no plan, {why}: name a plan of the same model (against).")
        return self.plan


def open_trace(trace: Trace | str | Path, against: Plan | str | Path | None = None) -> RecordedTrace:
    """Read a trace, and the plan beside it or another one to compare with.

    Args:
        trace: a trace, its file, or a folder written by `maqee compress`.
        against: a plan, its file, or such a folder, of the same model at the same bits.
    """
    if isinstance(trace, Trace):
        recorded, name, beside = trace, "The trace", None
    else:
        path = Path(trace) / TRACE if Path(trace).is_dir() else Path(trace)
        recorded, name, beside = Trace.load(path), str(path), path.parent / PLAN
        _warn_of_seen(path.parent)
    if against is None and (beside is None or not beside.is_file()):
        return RecordedTrace(recorded, None, name)
    if isinstance(against, Plan):
        plan, plan_name = against, "The plan"
    else:
        file = beside if against is None else Path(against)
        assert file is not None
        file = file / PLAN if file.is_dir() else file
        plan, plan_name = Plan.load(file), str(file)
    check_same(plan, recorded, plan_name, name)
    return RecordedTrace(recorded, plan, name)


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
            plan.bits,
            trace.bits,
            "a trace is of one allocation, so give the trace that was recorded with the plan",
        ),
    }
    for what, (ours, theirs, remedy) in pairs.items():
        if ours != theirs:
            raise MaqeeError(
                f"{plan_name} and {trace_name} cannot be compared, their {what} differ ({ours} and {theirs}): {remedy}."
            )
