"""What there is to show: a trained or a compressed run, opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from maqee.compression.run_folder import SOURCE, is_compressed, load
from maqee.data import ImageSet
from maqee.errors import MaqeeError
from maqee.evaluation.trained import open_split, read_run, stage_folder
from maqee.exits import EarlyExitModel, Policy
from maqee.io import read_json
from maqee.models import Backbone, load_backbone
from maqee.tasks import Task, tasks

THRESHOLD = 0.8  # of a trained run, which has no plan


@dataclass(frozen=True)
class Shown:
    """Everything that sheets are made from.

    Attributes:
        title: what the run is, for the heading.
        network: with exits, or a plain backbone.
        policy: where to stop.
        task: what is predicted.
        data: the images.
    """

    title: str
    network: EarlyExitModel | Backbone
    policy: Policy
    task: Task
    data: ImageSet


def open_shown(run: Path, path: Path | None, split: str, stage: str | None, threshold: float | None) -> Shown:
    """Open a folder of `maqee train` or `maqee compress`; the arguments are those of `show_run`."""
    if is_compressed(run):
        if stage is not None or threshold is not None:
            raise MaqeeError(
                f"{run} holds a compressed model, which follows its plan: --stage and --threshold are for folders of "
                "maqee train."
            )
        return _compressed(run, path, split)
    return _trained(run, path, split, stage, THRESHOLD if threshold is None else threshold)


def _compressed(run: Path, path: Path | None, split: str) -> Shown:
    compressed = load(run)
    plan, source = compressed.plan, read_json(run / SOURCE)["data"]
    data = open_split(source["data"], path or source["path"], source["holdout"], source["seed"], split)
    title = f"{run.resolve().name}, {plan.method}, weight bits {' '.join(map(str, plan.bits))} (simulated)"
    return _shown(title, compressed.model, plan.policy, tasks[plan.task], data)


def _trained(run: Path, path: Path | None, split: str, stage: str | None, threshold: float) -> Shown:
    recipe = read_run(run)
    folder, task, source = stage_folder(run, stage), tasks[recipe["task"]], recipe["data"]
    data = open_split(source["name"], path or source["path"], source["holdout"], recipe["seed"], split)
    title = f"{recipe['name']}, {folder.name}, full precision"
    if read_json(folder / "config.json").get("exits") is None:
        return _shown(title, load_backbone(folder), Policy(()), task, data)
    model = EarlyExitModel.load(folder, task.confidence)
    return _shown(title, model, Policy.same(threshold, model.num_exits), task, data)


def _shown(title: str, network: EarlyExitModel | Backbone, policy: Policy, task: Task, data: ImageSet) -> Shown:
    data.require(task.targets, task.name)
    backbone = network.backbone if isinstance(network, EarlyExitModel) else network
    if backbone.config.num_classes != len(data.classes):
        raise MaqeeError(
            f"The model has {backbone.config.num_classes} classes and {data.name} has {len(data.classes)}: give the "
            "data it is made for."
        )
    return Shown(title, network, policy, task, data)
