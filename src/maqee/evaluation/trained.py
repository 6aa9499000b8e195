"""Evaluate what `maqee train` left in a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maqee.apq.cost import BitSettings, total_macs, utilization
from maqee.data import ImageSet, open_data
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.record import Measured, evaluate_exits, measure_exits, metric_figures, policy_figures
from maqee.exits import NEVER, EarlyExitModel, Policy
from maqee.io import read_json
from maqee.models import load_backbone
from maqee.tasks import Task, tasks

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, NEVER)


def evaluate_run(
    run: Path,
    path: Path | None = None,
    split: str = "test",
    stage: str | None = None,
    device: str | None = None,
    task: str | None = None,
) -> dict[str, Any]:
    """The metric of every exit, and of a shared threshold, of a finished training run.

    All figures are in full precision. Those of policies are simulated: chosen from the outputs of all exits, which
    `EarlyExitModel.run` reproduces by really stopping.

    Args:
        run: the run's folder.
        path: where the data lies now.
        split: "test" or "calibration".
        stage: the stage to evaluate, the last one when left out.
        device: the GPU if there is one, when left out.
        task: another name for the recipe's task, with another confidence.
    """
    recipe = read_run(run)
    folder, source = stage_folder(run, stage), recipe["data"]
    data = open_split(source["name"], path or source["path"], source["holdout"], recipe["seed"], split)
    target = pick_device(device)
    chosen = tasks[task or recipe["task"]]
    data.require(chosen.targets, chosen.name)
    result: dict[str, Any] = {
        "run": recipe["name"],
        "stage": folder.name,
        "seed": recipe["seed"],
        "data": data.name,
        "images": len(data),
        "task": chosen.name,
        "metric": chosen.metric_name,
        "precision": "float32",
        "environment": describe_environment(),
        "policies": [],
    }
    if read_json(folder / "config.json").get("exits") is None:
        backbone = load_backbone(folder).to(target)
        figures = evaluate_exits(backbone, data, chosen)
        metric = figures[f"{chosen.metric_name}@{backbone.depth}"]
        row = {"block": backbone.depth, chosen.metric_name: metric, "macs": total_macs(backbone.parts())}
        return result | {"exits": [row]}
    model = EarlyExitModel.load(folder, chosen.confidence).to(target)
    policies = [Policy.same(threshold, model.num_exits) for threshold in THRESHOLDS] if model.num_exits else []
    measured = measure_exits(model, data, chosen, policies, show=True)
    bits = BitSettings.uniform(32, 32, model.backbone.depth)
    return result | {
        "exits": _exit_rows(model, measured, chosen),
        "policies": [
            policy_figures(model, measured.record, policy, bits, metric_figures(chosen, metric))
            for policy, metric in zip(policies, measured.policies, strict=True)
        ],
        "policies_are": "simulated",
    }


def _exit_rows(model: EarlyExitModel, measured: Measured, task: Task) -> list[dict[str, Any]]:
    """One row an exit; its cost is that of a model which always leaves there."""
    rows = []
    for index, block in enumerate(model.exit_blocks):
        mass = [float(other == index) for other in range(len(model.exit_blocks))]
        reach = utilization(mass, model.exit_blocks, model.backbone.depth)
        rows.append(
            {
                "block": block,
                "head": (*model.kinds, model.final_kind or "backbone")[index],
                **metric_figures(task, measured.exits[index]),
                "score": round(float(measured.record.score[index].mean()), 6),
                "loss": round(float(measured.record.loss[index].mean()), 6),
                "confidence": round(float(measured.record.confidence[index].mean()), 6),
                "macs": total_macs(model.parts(), reach),
            }
        )
    return rows


def read_run(run: Path) -> dict[str, Any]:
    """The recipe that a run was trained by."""
    recipe = read_json(run / "recipe.json").get("recipe")
    if not isinstance(recipe, dict):
        raise MaqeeError(f"{run / 'recipe.json'} holds no recipe: give a folder written by maqee train.")
    return recipe


def stage_folder(run: Path, stage: str | None) -> Path:
    """The folder of a finished stage; the last one when left out."""
    finished = sorted(path.parent for path in run.glob("*/stage.json"))
    if not finished:
        raise MaqeeError(f"{run} holds no finished stage: let maqee train go on.")
    if stage is None:
        return finished[-1]
    if run / stage not in finished:
        raise MaqeeError(f"{run} has no finished stage {stage!r}: choose {', '.join(path.name for path in finished)}.")
    return run / stage


def open_split(name: str, path: Path | str | None, holdout: int | None, seed: int, split: str) -> ImageSet:
    """The test or the calibration images, split off as in training."""
    if split not in ("test", "calibration"):
        raise MaqeeError(f"--split {split!r} is not one of test, calibration.")
    splits = open_data(name, path, holdout, seed)
    return splits.test if split == "test" else splits.calibration
