"""What a report is made from: everything that a folder of `maqee compress` holds, read once, as plain values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from maqee.apq import Budget, Figures, Plan, Trace, policy_figures
from maqee.apq.cost import full_precision_bops
from maqee.errors import MaqeeError
from maqee.evaluation.kept_examples import KeptExamples
from maqee.evaluation.recorded_trace import check_same
from maqee.io import read_json
from maqee.policy import NEVER
from maqee.runs import EXAMPLES, PLAN, REQUEST, SEARCH, SOURCE, TRACE, frontier_folders, is_compressed
from maqee.tasks import tasks


@dataclass(frozen=True, kw_only=True)
class RunContent:
    """One run. What an older or a copied folder lacks is None or empty, and the page says so.

    Attributes:
        name: of the folder.
        key: the same without anything that a file name or an id cannot have, and different for every run of a page.
        plan: bits and thresholds.
        trace: the calibration pass.
        examples: a few images for each exit.
        ladder: other plans of the same search, with the drop that each allows.
        source: where model and data lay, and with what it was made.
        request: every option.
        finished: False if the search was stopped early.
        reachable: the score at full depth with the most bits, which only the search has seen.
    """

    name: str
    key: str
    plan: Plan = field(repr=False)
    trace: Trace | None = field(repr=False)
    examples: KeptExamples | None = field(repr=False)
    ladder: tuple[tuple[float, Plan], ...] = field(repr=False)
    source: dict[str, Any] = field(repr=False)
    request: dict[str, Any] = field(repr=False)
    finished: bool
    reachable: float | None

    @property
    def score(self) -> str:
        """What the task calls the score of an image."""
        return tasks[self.plan.task].score_name

    @property
    def exits(self) -> int:
        """Number of exits, full depth not counted."""
        return len(self.plan.exit_blocks)

    @property
    def exit_names(self) -> tuple[str, ...]:
        """Every exit, and full depth."""
        return (*(f"block {block}" for block in self.plan.exit_blocks), "full depth")

    @property
    def asked(self) -> Budget:
        """What the search looked for."""
        return self.plan.budget.or_usual(self.plan.options)

    @property
    def timed(self) -> bool:
        """Whether measured time is the cost."""
        return self.plan.got.ms is not None

    @cached_property
    def full_bops(self) -> float | None:
        """What an image costs in full precision at full depth; only a trace knows."""
        if self.trace is None:
            return None
        return full_precision_bops(self.trace.parts, self.trace.depth)

    @property
    def cost_unit(self) -> str:
        """What `cost_of` counts in."""
        if self.timed:
            return "milliseconds an image"
        return "BOPs an image" if self.full_bops is None else "BOPs, % of full precision"

    def cost_of(self, figures: Figures) -> float:
        """The cost in the unit that the page shows."""
        return self.share_of(figures.bops) if figures.ms is None else figures.ms

    def share_of(self, spent: float) -> float:
        """BOPs as the page shows them."""
        return spent if self.full_bops is None else 100 * spent / self.full_bops

    @cached_property
    def full_depth(self) -> Figures | None:
        """The quantized model where nobody leaves early."""
        return None if self.trace is None else policy_figures(self.trace, (NEVER,) * self.trace.exits)

    @cached_property
    def needed(self) -> float | None:
        """The score that was asked for, as a number; None where none was, or where it cannot be told."""
        budget = self.asked
        if not budget.asks_for_metric:
            return None
        if budget.max_drop is None:
            return budget.min_metric
        if self.trace is None:
            return None
        if budget.drop_from == "quantized" and self.reachable is None:
            return None
        return budget.needed_metric(self.trace.float_metric, self.reachable)


def read_run(folder: Path, key: str = "run") -> RunContent:
    """Everything in a folder; one that `maqee compress` has not written is the user's error."""
    if not folder.is_dir():
        raise MaqeeError(f"{folder} is no folder: give one written by maqee compress.")
    if not is_compressed(folder):
        raise MaqeeError(
            f"{folder} holds no {PLAN}, so that there is nothing to report: give a folder of maqee compress."
        )
    plan = Plan.load(folder / PLAN)
    trace = Trace.load(folder / TRACE) if (folder / TRACE).is_file() else None
    if trace is not None:
        check_same(plan, trace, str(folder / PLAN), str(folder / TRACE))
    search = _facts(folder / SEARCH)
    return RunContent(
        name=folder.resolve().name,
        key=key,
        plan=plan,
        trace=trace,
        examples=_examples(folder, plan),
        ladder=tuple((drop, Plan.load(place / PLAN)) for drop, place in frontier_folders(folder)),
        source=_facts(folder / SOURCE),
        request=_facts(folder / REQUEST),
        finished=bool(search.get("finished", True)),
        reachable=search.get("reachable"),
    )


def read_runs(folders: Sequence[Path]) -> list[RunContent]:
    """Several runs, each with a key of its own."""
    keys: list[str] = []
    for folder in folders:
        plain = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "run"
        same = sum(key == plain or key.startswith(f"{plain}--") for key in keys)
        keys.append(f"{plain}--{same + 1}" if same else plain)
    return [read_run(folder, key) for folder, key in zip(folders, keys, strict=True)]


def _examples(folder: Path, plan: Plan) -> KeptExamples | None:
    """The kept images, as long as they took their exits by the plan's thresholds: a plan may have been replaced."""
    if not (folder / EXAMPLES).is_file():
        return None
    kept = KeptExamples.load(folder / EXAMPLES)
    return kept if kept.thresholds == plan.thresholds else None


def _facts(path: Path) -> dict[str, Any]:
    """The values of a file that a run is of use without."""
    return read_json(path) if path.is_file() else {}
