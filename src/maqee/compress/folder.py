"""Compress what lies in a folder, and load what compression left in one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maqee.apq import Budget, Plan, SearchOptions
from maqee.compress.run import PLAN, PREPROCESSING, UNRECOVERED, Compressed, CompressOptions, compress
from maqee.data import Splits, open_data
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.model import Decision
from maqee.io import read_json, write_json
from maqee.models.preprocessing import Preprocessing
from maqee.progress import phase
from maqee.quant.artifact import load_quantized
from maqee.tasks import tasks
from maqee.train.recipe import AugmentSection
from maqee.train.stages import stages

SOURCE = "source.json"


def compress_folder(
    model: Path,
    data: str,
    data_root: Path | None,
    out: Path,
    budget: Budget,
    search_options: SearchOptions,
    options: CompressOptions,
    device: str | None = None,
) -> Compressed:
    """Compress a saved early-exit model on a named data set; `out` then holds all that `maqee eval` needs.

    Args:
        model: a folder with a model that has exits, or a run folder of `maqee train`, whose last stage is taken.
        data: name of the data set, the one that the model was trained on, split in the same way.
        data_root: where it lies.
        out: the new folder.
        budget: what is asked for.
        search_options: how to search.
        options: everything else.
        device: the GPU if there is one.
    """
    folder, recipe = find_model(model)
    network = EarlyExitModel.load(folder, tasks[options.task].confidence)
    if augment := _augmentation(recipe):
        options = replace(options, recovery=replace(options.recovery, augment=augment))
    seed, holdout = recipe.get("seed", 0), recipe.get("data", {}).get("holdout")
    with phase(f"opening {data}"):
        splits = open_data(data, data_root, holdout, seed)
    check_classes(network, splits)
    source = {"data": data, "path": str(data_root) if data_root else None, "holdout": holdout, "seed": seed}
    facts = {"data": source, "model": str(folder), "task": options.task, "environment": describe_environment()}
    try:
        return compress(
            network,
            splits.calibration,
            splits.train,
            budget=budget,
            search_options=search_options,
            options=options,
            out=out,
            device=device,
            test=splits.test,
        )
    finally:  # also where a budget was missed: what was trained can then be evaluated
        for written in (out, out / UNRECOVERED):
            if is_compressed(written):
                write_json(written / SOURCE, facts)


def _augmentation(recipe: dict[str, Any]) -> AugmentSection | None:
    """How images were varied when the backbone was last trained; recovery, which trains it too, does the same."""
    for stage in reversed(recipe.get("stages", [])):
        if stages[stage["kind"]].trains_backbone:
            return AugmentSection(**stage["augment"])
    return None


def is_compressed(folder: Path) -> bool:
    """Whether a folder was written by `maqee compress`."""
    return (folder / PLAN).is_file()


def find_model(path: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of a model with exits, and the recipe that it was trained by, if it lies in a run folder."""
    done = sorted(found.parent for found in path.glob("*/stage.json"))
    folder = done[-1] if done else path
    if not (folder / "config.json").is_file():
        raise MaqeeError(f"{path} holds no model: give a folder written by maqee train, or one of its stages.")
    if read_json(folder / "config.json").get("exits") is None:
        raise MaqeeError(f"{folder} holds a model without exits: train some with a stage of `maqee train` first.")
    recipe = folder.parent / "recipe.json"
    found = read_json(recipe).get("recipe") if recipe.is_file() else None
    return folder, found if isinstance(found, dict) else {}


def stored_task(model: Path) -> str:
    """The task that a model was trained for, if its recipe lies with it; else classification."""
    return str(find_model(model)[1].get("task", "classification"))


def check_classes(network: EarlyExitModel, splits: Splits) -> None:
    """Complain if model and data were not made for each other."""
    have, want = network.backbone.config.num_classes, len(splits.test.classes)
    if have != want:
        raise MaqeeError(
            f"The model has {have} classes and {splits.test.name} has {want}: give the data it is made for."
        )


class CompressedModel:
    """A quantized model that follows its plan.

    Attributes:
        plan: bits and thresholds.
        model: the network; `forward_all` shows every exit.
        preprocessing: how it wants its images.
    """

    def __init__(self, plan: Plan, model: EarlyExitModel, preprocessing: Preprocessing) -> None:
        self.plan, self.model, self.preprocessing = plan, model.eval(), preprocessing

    def __call__(self, images: Tensor) -> Tensor:
        """Predictions for normalised images, each from the exit that was sure enough."""
        return self.run(images).output

    def run(self, images: Tensor) -> Decision:
        """The same with the exit each image took and how sure the model was."""
        return self.model.run(images, self.plan.policy)

    def to(self, device: str | torch.device) -> CompressedModel:
        """Move it to a device."""
        self.model.to(device)
        return self


def load(folder: str | Path) -> CompressedModel:
    """Load what `maqee compress` wrote: `load(folder)(images)`. Needs no search code and no training data."""
    folder = Path(folder)
    plan = Plan.load(folder / PLAN)
    quantized = load_quantized(folder)
    model = quantized.model
    if not isinstance(model, EarlyExitModel) or model.positions != plan.exit_blocks:
        raise MaqeeError(f"{folder}: {PLAN} and config.json do not belong together: copy the whole folder again.")
    if quantized.block_bits != plan.bits:
        raise MaqeeError(f"{folder}: {PLAN} has bits {plan.bits}, the model {quantized.block_bits}: copy it again.")
    model.use_confidence(tasks[plan.task].confidence)
    preprocessing = Preprocessing.from_json(read_json(folder / PREPROCESSING), str(folder / PREPROCESSING))
    return CompressedModel(plan, model, preprocessing)
