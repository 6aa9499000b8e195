"""What there is to show: a trained or a compressed run, opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from maqee.data import ImageSet, open_split
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.policy import NEVER, Policy
from maqee.runs import is_compressed, require_data, require_recipe, stage_folder
from maqee.runtime.loading import load
from maqee.runtime.ready import ReadyModel
from maqee.tasks import Task

THRESHOLD = 0.8  # of a trained run, which has no plan


@dataclass(frozen=True)
class Shown:
    """Everything that sheets are made from.

    Attributes:
        title: what the run is, for the heading.
        network: the model; a plain backbone has no exits.
        policy: where to stop.
        task: what is predicted.
        data: the images.
    """

    title: str
    network: EarlyExitModel
    policy: Policy
    task: Task
    data: ImageSet


def open_shown(run: Path, data_root: Path | None, split: str, stage: str | None, threshold: float | None) -> Shown:
    """Open a folder of `maqee train` or `maqee compress`; the arguments are those of `maqee.show`."""
    if is_compressed(run):
        if stage is not None or threshold is not None:
            raise MaqeeError(
                f"{run} holds a compressed model, which follows its plan: stage and threshold are for folders of "
                "maqee train."
            )
        ready = load(run)
        got = ready.plan.got
        bits = f"{got.weighted_bits:.3g} weight bits"
        if got.activation_bits is not None:
            bits += f" and {got.activation_bits:.3g} activation bits on average"
        title = f"{run.resolve().name}, {ready.plan.method}, {bits} (simulated)"
    else:
        recipe, value = require_recipe(run), THRESHOLD if threshold is None else threshold
        if not 0 <= value <= 1 and value != NEVER:
            raise MaqeeError(f"threshold: {value} must be from 0 to 1, or {NEVER:g} for never.")
        ready = load(run, stage=stage).with_policy(value)
        title = f"{recipe['name']}, {stage_folder(run, stage).name}, full precision"
    return _shown(title, ready, open_split(require_data(run, path=data_root), ready.model.backbone, split))


def _shown(title: str, ready: ReadyModel, data: ImageSet) -> Shown:
    data.require(ready.task.targets, ready.task.name)
    return Shown(title, ready.model, ready.policy, ready.task, data)
