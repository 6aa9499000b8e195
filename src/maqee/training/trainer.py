"""A whole recipe: stage after stage, resumable, with the calibration figures after each."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from maqee.data import Splits, open_data, warn_of_overlaps
from maqee.data.seen import write_seen
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.record import metric_by_exit
from maqee.exits import Network, add_exits, backbone_of, load_network, save_network
from maqee.exits.placement import final_kind
from maqee.folder_lock import check_folder, hold_folder
from maqee.io import read_json, write_json
from maqee.models import Backbone, ViT, fold_layer_scale
from maqee.models.load import on_meta
from maqee.progress import phase
from maqee.runs import RECIPE, STAGE, SUMMARY, finished_stages, resolve_model, stage_name
from maqee.tasks import Task, tasks
from maqee.threads import threads_for
from maqee.training.lessons import load_lessons
from maqee.training.recipe import Recipe, StageSection
from maqee.training.runner import Runner, make_runner
from maqee.training.stages import stages
from maqee.training.start import load_start
from maqee.training.teacher import Lesson
from maqee.training.training_loop import LoopOptions, train_stage

logger = logging.getLogger(__name__)


def run_recipe(recipe: Recipe, out: Path, device: str | None = None) -> dict[str, Any]:
    """Train what a recipe says into the folder `out`; called again, it goes on where it stopped.

    Each stage leaves a model folder, `out/1-finetune` and so on, and `out/train.json` tells what happened. On a
    processor a miniature (see `maqee.threads`) trains with one thread, unless OMP_NUM_THREADS says otherwise.

    Returns:
        The content of train.json.
    """
    runner = make_runner(recipe.precision, device)
    tasks[recipe.task].metric()  # a library it lacks is the user's error, now and not after hours
    if runner.rank == 0:
        check_folder(out)
    _check_owner(out, recipe)
    with phase(f"opening {recipe.data.name}", enabled=runner.rank == 0):
        splits = open_data(recipe.data.name, recipe.data.path, recipe.data.holdout, recipe.seed)
    task = tasks[recipe.task]
    splits.test.require(task.targets, task.name)
    if runner.rank == 0:
        with phase("comparing training, calibration and test images"):
            warn_of_overlaps(splits)
    torch.manual_seed(recipe.seed)
    model, aligned = _start(recipe, splits)
    _check_exits(recipe, model)
    finished = [stage.name for stage in finished_stages(out)]
    lessons = load_lessons(recipe, finished, model.preprocessing, aligned, runner.device)
    with hold_folder(out if runner.rank == 0 else None), threads_for(model.parts(), runner.device):
        _claim(out, recipe, runner)
        return _run_stages(recipe, model, splits, aligned, lessons, runner, out)


def _run_stages(
    recipe: Recipe,
    start: Backbone,
    splits: Splits,
    aligned: Splits,
    lessons: Mapping[str, Lesson],
    runner: Runner,
    out: Path,
) -> dict[str, Any]:
    """All stages, of which those that are done are only read.

    Args:
        recipe: what to do.
        start: the model to begin with.
        splits: the data as they were opened.
        aligned: the same with labels in the order of the model's classes.
        lessons: by the names of stages that have a teacher.
        runner: where steps run.
        out: the run folder.
    """
    task = tasks[recipe.task]
    history: list[dict[str, Any]] = []
    model: Network = start
    for index, settings in enumerate(recipe.stages):
        name = stage_name(index, settings.kind)
        if isinstance(model, Backbone) and (stages[settings.kind].needs_exits or _has_own_end(recipe)):
            torch.manual_seed(recipe.seed + index)
            exits = recipe.exits
            model = add_exits(model, exits.scheme, exits.positions, exits.final, task.confidence)
        done = out / name / STAGE
        if done.exists():
            model = load_network(out / name, task.confidence)
            _check_order(model, splits, aligned, out / name)
            backbone_of(model).classes = start.classes
            history.append(read_json(done))
            continue
        entry = _run_stage(model, aligned, settings, lessons.get(name), name, recipe, runner, out)
        if runner.rank == 0:
            save_network(model, out / name)
            write_seen(out / name, aligned.training().images, resolve_model(recipe.model.source))
            write_json(done, entry)  # last: its presence says that the stage is complete
            (out / f"{name}.checkpoint.safetensors").unlink(missing_ok=True)
        runner.wait()
        history.append(entry)
    summary = {
        "recipe": recipe.model_dump(mode="json"),
        "digest": recipe.digest(),
        "stages": history,
        "environment": describe_environment(),
    }
    if runner.rank == 0:
        write_json(out / SUMMARY, summary)
    return summary


def _run_stage(
    model: Network,
    splits: Splits,
    settings: StageSection,
    lesson: Lesson | None,
    name: str,
    recipe: Recipe,
    runner: Runner,
    out: Path,
) -> dict[str, Any]:
    task: Task = tasks[recipe.task]
    if settings.label_smoothing:
        task = task.smoothed(settings.label_smoothing)
    kind = stages[settings.kind]
    imitates = settings.kind in ("joint", "lgvit-heads") and settings.distillation is not None
    extra: dict[str, Any] = {"distillation": settings.distillation} if imitates else {}
    if lesson is not None:
        extra["lesson"] = lesson
    options = LoopOptions(
        folder=out,
        digest=recipe.digest(),
        seed=recipe.seed,
        checkpoint_minutes=recipe.checkpoint_minutes,
        compile=recipe.compile,
        tensorboard=recipe.tensorboard,
    )
    seconds = train_stage(kind(model, task, **extra), splits, settings, name, runner, options)
    started = time.monotonic()
    figures = metric_by_exit(model, splits.calibration, tasks[recipe.task])
    logger.info("%s: %s", name, figures)
    return {
        "stage": name,
        "train_seconds": round(seconds, 1),
        "evaluate_seconds": round(time.monotonic() - started, 1),
        "calibration": figures,
        "device": runner.device.type,
    }


def _has_own_end(recipe: Recipe) -> bool:
    """Whether the model ends in a head of its own, so that no stage can do with the plain backbone."""
    return (recipe.exits.final or final_kind(recipe.exits.scheme)) is not None


def _start(recipe: Recipe, splits: Splits) -> tuple[Backbone, Splits]:
    """Where training begins, and the data with classes in the order of its logits."""
    channels = _channels(splits)
    backbone, aligned = load_start(recipe.model, splits, recipe.seed)
    if backbone.config.channels != channels:
        raise MaqeeError(
            f"{recipe.model.source} takes {backbone.config.channels} channels, the images have {channels}."
        )
    if recipe.model.fold_layer_scale:
        if not isinstance(backbone, ViT):
            raise MaqeeError(f"{recipe.model.source} has no LayerScale: remove fold_layer_scale.")
        fold_layer_scale(backbone)
    return backbone, aligned


def _check_order(model: Network, splits: Splits, aligned: Splits, stage: Path) -> None:
    """Older versions numbered classes as the data do: what they began can go on only where that makes no difference."""
    if not backbone_of(model).classes and aligned.test.classes != splits.test.classes:
        raise MaqeeError(
            f"{stage} was trained by an older maqee, which did not match classes by name: train into another folder."
        )


def _channels(splits: Splits) -> int:
    from maqee.models.preprocessing import Preprocessing

    return splits.test.images.load([0], Preprocessing(image_size=(8, 8))).shape[1]


def _check_exits(recipe: Recipe, backbone: Backbone) -> None:
    """Build what stages need without memory for weights: a mistake in `exits` must not wait until one stage is done."""
    needing = [settings.kind for settings in recipe.stages if stages[settings.kind].needs_exits]
    if not needing and not _has_own_end(recipe):
        return
    wanted = recipe.exits
    with torch.device("meta"):
        model = add_exits(on_meta(backbone.config), wanted.scheme, wanted.positions, wanted.final)
    for kind in needing:
        stages[kind](model, tasks[recipe.task])


def _check_owner(out: Path, recipe: Recipe) -> None:
    """A run folder belongs to one recipe."""
    path = out / RECIPE
    if path.exists() and read_json(path).get("digest") != recipe.digest():
        raise MaqeeError(f"{out} holds a run of another recipe: choose another folder, or delete this one.")


def _claim(out: Path, recipe: Recipe, runner: Runner) -> None:
    """Make the folder this recipe's, now that nothing is known to be wrong with it."""
    _check_owner(out, recipe)  # another process may have been faster
    if runner.rank == 0 and not (out / RECIPE).exists():
        place = None if recipe.data.path is None else str(Path(recipe.data.path).resolve())
        values = {"digest": recipe.digest(), "recipe": recipe.model_dump(mode="json"), "data_path": place}
        write_json(out / RECIPE, values)
    runner.wait()
