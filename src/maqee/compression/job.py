"""The whole method: quantize, search bits and thresholds together, train the result, write it down."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from maqee.apq import Budget, SearchOptions, SearchResult, SearchState, make_plan, search
from maqee.apq.budget import USUAL_DROP
from maqee.apq.loop import most_steps
from maqee.apq.timed_pairs import times_at
from maqee.compression.compress_options import CompressOptions
from maqee.compression.model_measure import ModelMeasure
from maqee.compression.promise import check_kept, check_risk, guarantee_plan
from maqee.compression.recovery import MIRRORED, Recovery, recover_and_choose, training_batch
from maqee.compression.recovery_settings import usual_lr
from maqee.compression.remembered import Memory, RememberedMeasure
from maqee.compression.request import Request, claim
from maqee.data import ImageSet, Splits, eval_batches, warn_of_overlaps
from maqee.device import pick_device
from maqee.errors import MaqeeError
from maqee.evaluation.calibration import draw_images, other_images
from maqee.evaluation.kept_examples import collect_examples
from maqee.evaluation.record import Batch, evaluation_batches
from maqee.exits import EarlyExitModel
from maqee.folder_lock import check_folder, hold_folder
from maqee.freed_memory import keep_freed
from maqee.io import write_json, write_text
from maqee.processor import check_reduced_precision
from maqee.progress import phase
from maqee.progress import steps as show_steps
from maqee.quant import Bits, QuantizedModel, QuantSettings, methods, quantize
from maqee.quant.artifact import save_quantized
from maqee.quant.settings import FLOAT
from maqee.runs import EXAMPLES, FRONTIER, PLAN, PREPROCESSING, SEARCH, SNAPSHOTS, SOURCE, TRACE, TRAINING, UNRECOVERED
from maqee.runtime.ready import Compression, ReadyModel
from maqee.tasks import tasks
from maqee.threads import threads_for

DISCARDED = "Training made the plan worse, so that the plan and the weights are those from before it."


def compress_model(
    model: EarlyExitModel,
    calibration: ImageSet,
    train: ImageSet | None = None,
    *,
    budget: Budget | None = None,
    search_options: SearchOptions | None = None,
    options: CompressOptions | None = None,
    out: Path | None = None,
    device: str | None = None,
    test: ImageSet | None = None,
    source: Mapping[str, Any] | None = None,
    searched: Path | None = None,
    memory: Memory | None = None,
    show: bool = True,
) -> ReadyModel:
    """Choose bits and thresholds for a model with exits; see `maqee.compress`, whose arguments these are.

    The model that is given stays as it is. A budget that cannot be met is an error, raised when everything has been
    written, so that the nearest plan is not lost. `source` says where model and data lie, for commands that need them
    again. `searched` is the file of the same search of the same model, which is then gone on with: it may have been
    finished, where only training is new. `memory` holds what earlier searches of the same fitted model have measured.
    """
    budget, how, options = budget or Budget(), search_options or SearchOptions(), options or CompressOptions()
    options = completed(options, model)
    task = tasks[options.task or "classification"]
    trains = bool(options.recovery_steps or how.recovery_steps)
    if trains and (train is None or out is None):
        raise MaqeeError("Recovery needs training images and a folder for its weights: give train and out.")
    if out is not None:
        check_folder(out)
    target = pick_device(device)
    check_reduced_precision(options.recovery.precision if trains else "fp32", target)
    if test is not None:
        with phase("comparing training, calibration and test images", show):
            warn_of_overlaps(Splits(train, calibration, test))
    calibration.require(task.targets, task.name)
    if options.risk is not None:
        check_risk(options.risk, task, calibration, len(other_images(calibration, *options.draws)))
    draw_images(calibration, *options.draws)
    _ = methods[options.method], searched_widths(options.quantization, how)  # mistakes must not leave a folder behind
    budget.check_widths(model.backbone.depth, how)
    with hold_folder(out), threads_for(model.parts(), target):
        return _compress_checked(
            model, calibration, train, budget, how, options, out, target, source, searched, memory, show
        )


def _compress_checked(
    model: EarlyExitModel,
    calibration: ImageSet,
    train: ImageSet | None,
    budget: Budget,
    how: SearchOptions,
    options: CompressOptions,
    out: Path | None,
    target: torch.device,
    source: Mapping[str, Any] | None,
    searched: Path | None,
    memory: Memory | None,
    show: bool,
) -> ReadyModel:
    """The job itself, in a folder that no other process works in."""
    keep_freed()
    task = tasks[options.task or ""]
    request = Request.of(model, calibration, budget, how, options)
    if out is not None:
        claim(out, request)
    fitting, measuring = draw_images(calibration, *options.draws)
    reference = copy.deepcopy(model).to(target).eval()
    with phase("fitting grids", show):
        quantized = fit_model(reference, fitting, searched_widths(options.quantization, how), options, target)
    recovery = None
    if (options.recovery_steps or how.recovery_steps) and train is not None and out is not None:
        recovery = Recovery(reference, train, task, options.recovery, options.seed, out / TRAINING, target)
    with phase("reading calibration images", show):
        batches = load_batches(measuring, reference)
    with phase("measuring full precision", show):
        snapshots = out / SNAPSHOTS if out is not None else None
        measure = ModelMeasure(
            reference,
            quantized,
            batches,
            task,
            request.model,
            options.scored if how.bits == "weights" else 0,
            recovery,
            snapshots,
            partial(times_at, how),
            how.head_ms,
        )
    if out is not None and searched is not None and not (out / SEARCH).exists():
        write_text(out / SEARCH, searched.read_text(encoding="utf-8"))
    result = _search(measure, how, budget, options, out, memory, show)
    done = _conclude(quantized, result, budget, options)
    if result.state.finished and how.frontier and out is not None:
        with phase("writing the frontier", show):  # before training, which is for one plan's widths
            _write_frontier(measure, result, options, out, source)
    if result.state.finished and options.recovery_steps and recovery is not None and out is not None:
        _write(out / UNRECOVERED, done, source)
        result = recover_and_choose(measure, recovery, result, budget, options.recovery_steps)
        done = _conclude(quantized, result, budget, options)
    if done.finished and options.risk is not None:
        others = calibration.select(other_images(calibration, *options.draws))
        plan = guarantee_plan(done.plan, done.trace, done.model, others, task, options.risk)
        done = done.with_plan(plan)
    if out is not None:
        _write(out, done, source)
        collect_examples(done.model, measuring, task, done.trace, done.plan.thresholds).save(out / EXAMPLES)
    _check_met(done, result, budget, out)
    return done


def completed(options: CompressOptions, model: EarlyExitModel) -> CompressOptions:
    """The options with what was left open: a request says what is really done."""
    size = options.recovery.batch_size or training_batch(model.backbone)
    given = options.recovery
    recovery = replace(given, batch_size=size, lr=given.lr or usual_lr(size), augment=given.augment or MIRRORED)
    return replace(options, task=options.task or "classification", recovery=recovery)


def searched_widths(settings: QuantSettings, how: SearchOptions) -> QuantSettings:
    """The settings with every width that a search may use."""
    weights = tuple(range(how.bit_min, how.bit_max + 1))
    if how.bits == "weights":
        return replace(settings, widths=weights)
    settings = replace(settings, widths=weights, act_widths=tuple(range(how.act_min, how.act_max + 1)))
    if how.search_bits == "blocks":
        return settings
    if settings.heads is not None and settings.heads != FLOAT:  # where a choice begins must be one of the choices
        settings = replace(settings, heads=_within(settings.heads, how))
    if how.search_bits == "blocks+heads":
        return replace(settings, switched=("block", "head"))
    widest = Bits(how.bit_max, how.act_max)  # where these begin, unless they were asked to be something else
    return replace(
        settings,
        switched=("block", "head", "patch", "classifier"),
        patch=widest if settings.patch == FLOAT else _within(settings.patch, how),
        classifier=widest if settings.classifier == FLOAT else _within(settings.classifier, how),
    )


def _within(bits: Bits, how: SearchOptions) -> Bits:
    """The nearest widths that a search may choose; float is nearest to the most bits."""
    weights, activations = bits.weights or how.bit_max, bits.activations or how.act_max
    return Bits(
        min(max(weights, how.bit_min), how.bit_max),
        min(max(activations, how.act_min), how.act_max),
    )


def fit_model(
    reference: EarlyExitModel,
    fitting: ImageSet,
    settings: QuantSettings,
    options: CompressOptions,
    device: torch.device,
) -> QuantizedModel:
    """Fit the method at all widths of the settings."""
    [(images, _)] = eval_batches(fitting, reference.backbone.preprocessing, len(fitting), device)
    return quantize(reference, images, options.method, settings)


def load_batches(measuring: ImageSet, reference: EarlyExitModel) -> Sequence[Batch]:
    """Calibration images on the reference's device."""
    return list(evaluation_batches(reference, measuring))


def _search(
    measure: ModelMeasure,
    how: SearchOptions,
    budget: Budget,
    options: CompressOptions,
    out: Path | None,
    memory: Memory | None,
    show: bool,
) -> SearchResult:
    """Search, or go on with a search; with training at the end, what must be reached is judged after it."""
    if options.recovery_steps and budget.asks_for_metric:
        with phase("measuring uniform bits", show):
            budget = replace(budget, min_metric=_metric_before_recovery(measure, budget, how), max_drop=None)
    state = None
    if out is not None and (out / SEARCH).exists():
        state = SearchState.from_json((out / SEARCH).read_text(encoding="utf-8"), str(out / SEARCH))
    most = most_steps(measure.depth, how)
    with show_steps("searching", most, enabled=show) as bar:

        def on_step(state: SearchState) -> None:
            if out is not None:
                write_text(out / SEARCH, state.to_json())
            figures = state.best.figures
            note = f"metric {figures.metric:.2%} at exit {figures.mean_exit:.2f}, {figures.cost_words}"
            bar.update(most if state.finished else len(state.history), note)

        asked = measure if memory is None or how.recovery_steps else RememberedMeasure(measure, memory)
        return search(asked, how, budget, state, on_step)


def _metric_before_recovery(measure: ModelMeasure, budget: Budget, how: SearchOptions) -> float:
    """A target that can be met before training, with a policy like the one that will meet the real one after it.

    As far below the quantized model's full-depth metric as the real target is below the full-precision model's.
    """
    depth, start = measure.depth, measure.start
    if how.bits == "weights":
        start = start.with_weights((budget.total_bits(depth, how) // depth,) * depth)
    elif how.before_training:
        start = start.with_weights((how.bit_max,) * depth)
    trace = measure.trace(start)
    needed = budget.needed_metric(trace.float_metric, trace.full_metric)
    assert needed is not None
    return max(0.0, min(needed, trace.full_metric - max(0.0, trace.float_metric - needed)))


def _conclude(quantized: QuantizedModel, result: SearchResult, budget: Budget, options: CompressOptions) -> ReadyModel:
    model = quantized.model
    assert isinstance(model, EarlyExitModel)
    quantized.set_widths(result.best.bits)
    plan = make_plan(result, exit_kinds=model.kinds, method=options.method, seed=options.seed, budget=budget)
    state = result.state
    notes = (DISCARDED,) if any(step.kind == "recovery" and not step.accepted for step in state.history) else ()
    if budget.asks_for_nothing and state.target.min_metric is not None:
        notes = (*notes, _usual_words(state.target.min_metric, result.best.excess))
    compression = Compression(plan, quantized, result.trace, result.state.finished, notes)
    return ReadyModel(model.eval(), plan.policy, plan.task, compression)


def _usual_words(target: float, excess: float) -> str:
    """What was looked for where nothing was asked; that it is missed is no mistake of the user's."""
    words = (
        f"Nothing was asked for, so the target is {USUAL_DROP:.0%} below the {target + USUAL_DROP:.2%} that the "
        "quantized model reaches at full depth"
    )
    return f"{words}." if excess <= 0 else f"{words}; what was found misses it by {excess:.2%}."


def _write(folder: Path, done: ReadyModel, source: Mapping[str, Any] | None) -> None:
    save_quantized(done.quantized, folder)
    done.trace.save(folder / TRACE)
    done.plan.save(folder / PLAN)
    write_json(folder / PREPROCESSING, done.preprocessing.to_json())
    if source is not None:
        write_json(folder / SOURCE, dict(source))


def _write_frontier(
    measure: ModelMeasure,
    result: SearchResult,
    options: CompressOptions,
    out: Path,
    source: Mapping[str, Any] | None,
) -> None:
    """A folder for every target of the ladder that can be met: the same search, other widths and thresholds."""
    for point in result.state.frontier:
        if point.position.excess <= 0:
            state = replace(
                result.state, best=point.position, budget=point.target, target=point.target, folds=point.folds
            )
            reached = SearchResult(point.position, state, measure.trace(point.position.bits))
            folder = out / FRONTIER / f"drop-{point.drop:.4f}"
            _write(folder, _conclude(measure.quantized, reached, point.target, options), source)
    measure.quantized.set_widths(result.best.bits)


def _check_met(done: ReadyModel, result: SearchResult, budget: Budget, out: Path | None) -> None:
    """Complain if the budget is missed, when everything has been written."""
    try:
        if result.state.finished and not budget.asks_for_nothing:  # by what was asked: before training it was less
            asked = result.state.target if budget.like is not None else budget
            asked.check_met(result.best.excess, result.best.figures)
        check_kept(done.plan, done.trace)
    except MaqeeError as error:
        kept = f" The nearest plan was kept in {out}." if out is not None else ""
        raise MaqeeError(f"{error}{kept}") from error
