"""`maqee.compress`: a model in memory with images of the caller's, or a run in a folder with the data it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maqee.apq import Budget, SearchOptions
from maqee.apq.road_times import RoadTimes
from maqee.compression.compress_options import CompressOptions
from maqee.compression.job import compress_model
from maqee.data import ImageSet, Splits, open_source
from maqee.data.seen import check_unseen
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, load_compressible
from maqee.models import Backbone
from maqee.models.preprocessing import override
from maqee.progress import phase
from maqee.runs import (
    SEEN,
    DataSource,
    read_recipe,
    require_data,
    require_folder,
    resolve_model,
    task_of,
)
from maqee.runtime.ready import ReadyModel
from maqee.tasks import tasks
from maqee.training.recipe import AugmentSection
from maqee.training.stages import stages


def compress(
    model: EarlyExitModel | str | Path,
    calibration: ImageSet | None = None,
    train: ImageSet | None = None,
    *,
    data: str | None = None,
    data_root: str | Path | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    cost: RoadTimes | str | Path | None = None,
    budget: Budget | None = None,
    search_options: SearchOptions | None = None,
    options: CompressOptions | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    test: ImageSet | None = None,
    show: bool = True,
) -> ReadyModel:
    """Choose bits and thresholds for a model with exits, so that the expected cost is least at what is asked for.

    Called again with the same `out`, it goes on where it stopped and ends with the same plan.

    Args:
        model: a trained model with exits; or the folder of a run of `maqee train`, of one of its stages, or any other
            model, whose data set is then known or named. For a model without exits only bits are chosen.
        calibration: images that no part of the model was trained on; only for a model in memory.
        train: training images, for recovery; only for a model in memory.
        data: name of the data set, if the folder does not say; split as in training.
        data_root: where the data lie, if not where they were.
        preprocessing: what replaces the checkpoint's own, for a model that is read from files: any of `resize` (short
            side before the crop), `mean`, `std`, `resample` and `exif`.
        cost: times that `profile` measured, or their file: the cost is then time, not BOPs. Widths are those of the
            best timed pair or, where widths were not timed, six bits of weights and eight of activations, because fewer
            are no faster; search_options may say otherwise.
        budget: the most cost or the least metric; asked for nothing, at most a point below what the quantized model
            can reach.
        search_options: how to search.
        options: everything else that decides the result.
        out: folder for plan, trace, model and the state of the search. With training at the end, its folder
            "unrecovered" holds what was there before it. Nothing is written when left out.
        device: the GPU if there is one. A miniature (see `maqee.threads`) uses one thread of the processor.
        test: test images, only to make sure that none of them is among the calibration images.
        show: progress with the time left.
    """
    out = None if out is None else Path(out)
    times = RoadTimes.load(Path(cost)) if isinstance(cost, str | Path) else cost
    if times is not None:
        search_options = times.options(search_options)
    if isinstance(model, EarlyExitModel):
        if preprocessing is not None:
            raise MaqeeError("A model in memory says itself how images are prepared: set model.backbone.preprocessing.")
        if calibration is None or data is not None or data_root is not None:
            raise MaqeeError("A model in memory needs calibration images: give calibration, not data and data_root.")
        if times is not None:
            times.check_fits(model.exit_blocks)
        return compress_model(
            model,
            calibration,
            train,
            budget=budget,
            search_options=search_options,
            options=options,
            out=out,
            device=device,
            test=test,
            show=show,
        )
    if calibration is not None or train is not None or test is not None:
        raise MaqeeError("A model in a folder comes with its data: give data and data_root, not sets of images.")
    run, options = Path(model), options or CompressOptions()
    options = replace(options, task=options.task or task_of(run))
    source = require_data(run if data is not None else require_folder(run), data, data_root)
    return _compress_run(run, source, preprocessing or {}, times, budget, search_options, options, out, device, show)


def _compress_run(
    run: Path,
    source: DataSource,
    preprocessing: Mapping[str, Any],
    times: RoadTimes | None,
    budget: Budget | None,
    search_options: SearchOptions | None,
    options: CompressOptions,
    out: Path | None,
    device: str | None,
    show: bool,
) -> ReadyModel:
    opened = open_run(run, source, preprocessing, options, show)
    if times is not None:
        times.check_fits(opened.network.exit_blocks)
    return compress_model(
        opened.network,
        opened.splits.calibration,
        opened.splits.train,
        budget=budget,
        search_options=search_options,
        options=opened.options,
        out=out,
        device=device,
        test=opened.splits.test,
        source=opened.facts,
        show=show,
    )


@dataclass(frozen=True)
class OpenedRun:
    """A run with its images, ready to be compressed.

    Attributes:
        network: the model, in full precision.
        splits: its images.
        options: those given, with images varied in recovery as they were when the backbone was trained.
        facts: where model and data lie, for `source.json`.
    """

    network: EarlyExitModel
    splits: Splits
    options: CompressOptions
    facts: dict[str, Any]


def open_run(
    run: Path,
    source: DataSource,
    preprocessing: Mapping[str, Any],
    options: CompressOptions,
    show: bool = True,
    read: Callable[[DataSource, Backbone], Splits] = open_source,
) -> OpenedRun:
    """Load a model and open its data, with `read`; the options must name the task."""
    folder = resolve_model(run)
    network = load_compressible(folder, tasks[options.task or ""].confidence)
    network.backbone.preprocessing = override(network.backbone.preprocessing, **preprocessing)
    if options.recovery.augment is None:
        recovery = replace(options.recovery, augment=_augmentation(read_recipe(run)))
        options = replace(options, recovery=recovery)
    with phase(f"opening {source.name}", show):
        splits = read(source, network.backbone)
    facts = {
        "data": source.to_json(),
        "model": str(Path(folder).resolve() if Path(folder).exists() else folder),
        "task": options.task,
        SEEN: check_unseen(Path(folder), splits.calibration),
        "environment": describe_environment(),
    }
    return OpenedRun(network, splits, options, facts)


def _augmentation(recipe: dict[str, Any]) -> AugmentSection | None:
    """How images were varied when the backbone was last trained; recovery, which trains it too, does the same."""
    for stage in reversed(recipe.get("stages", [])):
        if stages[stage["kind"]].trains_backbone:
            return AugmentSection(**stage["augment"])
    return None
