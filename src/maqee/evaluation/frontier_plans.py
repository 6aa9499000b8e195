"""The plans of a frontier on test images: what each promised, and what it does. All figures are simulated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maqee.apq.plan import Plan
from maqee.data import open_split
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.kept_batches import keep_batches
from maqee.evaluation.record import Batch, evaluation_batches, measure_batches, policy_rows
from maqee.evaluation.results import PolicyFigures
from maqee.progress import steps
from maqee.runs import frontier_folders, require_data
from maqee.runtime.loading import load
from maqee.runtime.ready import ReadyModel
from maqee.tasks import Task


@dataclass(frozen=True, kw_only=True)
class FrontierRow:
    """One plan of a frontier.

    Attributes:
        drop: how far its target lies below what the quantized model can reach.
        plan: bits, thresholds, the target and what was expected of it.
        figures: on the images that it is evaluated on.
    """

    drop: float
    plan: Plan
    figures: PolicyFigures

    def to_json(self) -> dict[str, Any]:
        """Plain values; the target and what was expected are mean scores, which the search works with."""
        got, expected = self.plan.got, self.plan.expected
        return {
            "drop": self.drop,
            "target": self.plan.budget.min_metric,
            "expected": None if expected is None else expected.metric,
            "expected_error": None if expected is None else expected.metric_error,
            "on_calibration": got.metric,
            "weight_bits": got.weighted_bits,
            "activation_bits": got.activation_bits,
            "bits": self.plan.bits.to_json(),
            **self.figures.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class FrontierEvaluation:
    """Every plan of a frontier on the same images.

    Attributes:
        run: name of the folder that the frontier lies in.
        data: name of the images.
        images: how many.
        task: what is predicted.
        method: quantization method.
        seed: random seed of the search.
        rows: the most demanding target first.
        environment: versions and hardware.
    """

    run: str
    data: str
    images: int
    task: Task
    method: str
    seed: int
    rows: tuple[FrontierRow, ...]
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee eval --frontier --out` writes them."""
        return {
            **{name: getattr(self, name) for name in ("run", "data", "images", "method", "seed")},
            "task": self.task.name,
            "metric": self.task.metric_name,
            "score": self.task.score_name,
            "accuracy_is": "simulated",
            "plans": [row.to_json() for row in self.rows],
            "environment": dict(self.environment),
        }


def evaluate_frontier(
    run: Path, data_root: Path | None = None, split: str = "test", device: str | None = None
) -> FrontierEvaluation:
    """Every plan under RUN/frontier; images are opened and prepared once.

    The arguments are those of `maqee.evaluate`.
    """
    folders = frontier_folders(run)
    if not folders:
        raise MaqeeError(
            f"{run} holds no frontier of plans: compress the model with search.frontier=true into a new folder."
        )
    target = pick_device(device)
    first = load(folders[0][1]).to(target)
    data = open_split(require_data(run, path=data_root), first.model.backbone, split)
    batches, rows = keep_batches(lambda: evaluation_batches(first.model, data), len(data)), []
    with steps(f"evaluating plans on {data.name}", len(folders)) as bar:
        for drop, folder in folders:
            ready = load(folder).to(target)
            rows.append(FrontierRow(drop=drop, plan=ready.plan, figures=_measure_plan(ready, batches)))
            bar.update(len(rows))
    return FrontierEvaluation(
        run=run.name,
        data=data.name,
        images=len(data),
        task=first.task,
        method=first.plan.method,
        seed=first.plan.seed,
        rows=tuple(rows),
        environment=describe_environment(),
    )


def _measure_plan(ready: ReadyModel, batches: Iterable[Batch]) -> PolicyFigures:
    policies = [ready.plan.policy]
    measured = measure_batches(ready.model, batches, ready.task, policies)
    [row] = policy_rows(ready.model, measured, ready.task, ready.plan.bits, policies)
    return row
