"""The whole method: quantize, search bits and thresholds together, train the result, write it down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from maqee.apq import Budget, Plan, SearchOptions, SearchResult, SearchState, Trace, make_plan, search
from maqee.compress.finish import recover_and_choose
from maqee.compress.guarantee import RiskOptions, check_kept, check_risk, guarantee_plan
from maqee.compress.measure import Batch, ModelMeasure
from maqee.compress.recovery import Recovery, RecoverySettings, training_batch
from maqee.compress.request import Request, claim
from maqee.data import ImageSet, Splits, eval_batches, warn_of_overlaps
from maqee.device import pick_device
from maqee.errors import MaqeeError
from maqee.evaluate.exits import evaluation_batch
from maqee.exits import EarlyExitModel
from maqee.folder_lock import check_folder, hold_folder
from maqee.io import write_json, write_text
from maqee.processor import check_reduced_precision
from maqee.progress import phase
from maqee.progress import steps as show_steps
from maqee.quant import QuantizedModel, QuantSettings, methods, quantize
from maqee.quant.artifact import save_quantized
from maqee.tasks import tasks
from maqee.threads import threads_for

SEARCH, PLAN, TRACE, PREPROCESSING = "search.json", "plan.json", "trace.safetensors", "preprocessor_config.json"
SNAPSHOTS, UNRECOVERED = "snapshots", "unrecovered"


@dataclass(frozen=True)
class Compressed:
    """What came out.

    Attributes:
        plan: bits, thresholds and how they came about.
        quantized: the model at these bits; `quantized.model.run(images, plan.policy)` stops early.
        trace: the calibration pass at these bits.
        finished: False if the search was interrupted; the plan is then the best so far.
    """

    plan: Plan
    quantized: QuantizedModel
    trace: Trace
    finished: bool

    @property
    def model(self) -> EarlyExitModel:
        """The network."""
        assert isinstance(self.quantized.model, EarlyExitModel)
        return self.quantized.model


@dataclass(frozen=True, kw_only=True)
class CompressOptions:
    """How a model is compressed, apart from the search's own options.

    Attributes:
        method: quantization method.
        task: name of the task.
        quantization: bits of everything that the search does not choose.
        fit_images: calibration images that grids are fitted on.
        samples: further calibration images that risks and thresholds are measured on.
        scored: those of them that single blocks are run on at other widths.
        recovery_steps: training steps at the end; 0 is none. Steps after every swap are the search's option.
        recovery: how to train.
        risk: a promise to make with the calibration images that are left over; None is none.
        seed: of everything random.
    """

    method: str = "erq"
    task: str = "classification"
    quantization: QuantSettings = field(default_factory=QuantSettings)
    fit_images: int = 32
    samples: int = 1024
    scored: int = 512
    recovery_steps: int = 0
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    risk: RiskOptions | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, count in (("fit_images", self.fit_images), ("samples", self.samples)):
            if count < 1:
                raise MaqeeError(f"{name} {count} must be at least one calibration image.")


def compress(
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
    show: bool = True,
) -> Compressed:
    """Choose bits and thresholds for a model with exits, so that the expected cost is least at what is asked for.

    Called again with the same `out`, it goes on where it stopped and ends with the same plan.

    Args:
        model: a trained model with exits.
        calibration: images that no part of the model was trained on.
        train: training images, for recovery only.
        budget: average bits, and the most cost or the least metric.
        search_options: how to search.
        options: everything else that decides the result.
        out: folder for plan, trace, model and the state of the search; nothing is written when left out. With
            training at the end, its folder "unrecovered" holds what was there before it.
        device: the GPU if there is one. A miniature (see `maqee.threads`) uses one thread of the processor.
        test: test images, only to make sure that none of them is among the calibration images.
        show: progress with the time left.
    """
    budget, how, options = budget or Budget(), search_options or SearchOptions(), options or CompressOptions()
    task = tasks[options.task]
    if options.recovery.batch_size is None:  # the request says what was really done
        size = training_batch(model.backbone)
        options = replace(options, recovery=replace(options.recovery, batch_size=size))
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
        check_risk(options.risk, task, calibration, len(other_images(calibration, options)))
    draw_images(calibration, options)
    _ = methods[options.method], budget.total_bits(model.backbone.depth, how)  # mistakes must not leave a folder behind
    with hold_folder(out), threads_for(model.parts(), target):
        return _compress_checked(model, calibration, train, budget, how, options, out, target, show)


def _compress_checked(
    model: EarlyExitModel,
    calibration: ImageSet,
    train: ImageSet | None,
    budget: Budget,
    how: SearchOptions,
    options: CompressOptions,
    out: Path | None,
    target: torch.device,
    show: bool,
) -> Compressed:
    """The job itself, in a folder that no other process works in."""
    task = tasks[options.task]
    request = Request.of(model, calibration, budget, how, options)
    if out is not None:
        claim(out, request)
    fitting, measuring = draw_images(calibration, options)
    reference = model.to(target).eval()
    widths = tuple(range(how.bit_min, how.bit_max + 1))
    with phase("fitting grids", show):
        quantized = fit_model(reference, fitting, widths, options, target)
    recovery = None
    if (options.recovery_steps or how.recovery_steps) and train is not None and out is not None:
        folder = out / "training"
        recovery = Recovery(reference, train, task, options.recovery, options.seed, folder, target)
    with phase("reading calibration images", show):
        batches = load_batches(measuring, reference, target)
    with phase("measuring full precision", show):
        measure = ModelMeasure(
            reference,
            quantized,
            batches,
            task,
            request.model,
            options.scored,
            recovery,
            out / SNAPSHOTS if out is not None else None,
        )
    result = _search(measure, how, budget, options, out, show)
    done = _conclude(model, quantized, result, budget, options)
    if result.state.finished and options.recovery_steps and recovery is not None and out is not None:
        _write(out / UNRECOVERED, done)
        result = recover_and_choose(measure, recovery, result, budget, options.recovery_steps)
        done = _conclude(model, quantized, result, budget, options)
    if done.finished and options.risk is not None:
        others = calibration.select(other_images(calibration, options))
        plan = guarantee_plan(done.plan, done.trace, done.model, others, task, options.risk)
        done = replace(done, plan=plan)
    if out is not None:
        _write(out, done)
    if result.state.finished:  # trained weights are worth keeping also where they miss the target
        budget.check_met(result.best.excess, result.best.figures)
    check_kept(done.plan, done.trace)
    return done


def draw_images(calibration: ImageSet, options: CompressOptions) -> tuple[ImageSet, ImageSet]:
    """Calibration images to fit grids on, and others to measure risks on."""
    order = np.random.RandomState(options.seed).permutation(len(calibration))
    if len(calibration) <= options.fit_images:
        raise MaqeeError(
            f"{calibration.name} has {len(calibration)} images; {options.fit_images} are needed to fit grids and more "
            "to measure risks: give more calibration images, or fit on fewer (--fit-images)."
        )
    fitting = calibration.select(order[: options.fit_images].tolist())
    return fitting, calibration.select(order[options.fit_images :][: options.samples].tolist())


def other_images(calibration: ImageSet, options: CompressOptions) -> list[int]:
    """Indices of the calibration images that the search does not look at, for guarantees."""
    order = np.random.RandomState(options.seed).permutation(len(calibration))
    return [int(index) for index in order[options.fit_images + options.samples :]]


def fit_model(
    reference: EarlyExitModel,
    fitting: ImageSet,
    widths: tuple[int, ...],
    options: CompressOptions,
    device: torch.device,
) -> QuantizedModel:
    """Fit the method at several widths."""
    [(images, _)] = eval_batches(fitting, reference.backbone.preprocessing, len(fitting), device)
    return quantize(reference, images, options.method, replace(options.quantization, widths=widths))


def load_batches(measuring: ImageSet, reference: EarlyExitModel, device: torch.device) -> Sequence[Batch]:
    """Calibration images on the device."""
    size = evaluation_batch(reference.backbone)
    return list(eval_batches(measuring, reference.backbone.preprocessing, size, device))


def _search(
    measure: ModelMeasure, how: SearchOptions, budget: Budget, options: CompressOptions, out: Path | None, show: bool
) -> SearchResult:
    """Search, or go on with a search; with training at the end, what must be reached is judged after it."""
    if options.recovery_steps and budget.asks_for_metric:
        with phase("measuring uniform bits", show):
            budget = replace(budget, min_metric=_metric_before_recovery(measure, budget, how), max_drop=None)
    state = None
    if out is not None and (out / SEARCH).exists():
        state = SearchState.from_json((out / SEARCH).read_text(encoding="utf-8"), str(out / SEARCH))
    most = (2 * measure.depth if how.max_swaps is None else how.max_swaps) + 2
    with show_steps("searching", most, enabled=show) as bar:

        def on_step(state: SearchState) -> None:
            if out is not None:
                write_text(out / SEARCH, state.to_json())
            figures = state.best.figures
            note = f"metric {figures.metric:.2%} at exit {figures.mean_exit:.2f}, {figures.bops:.3g} BOPs"
            bar.update(most if state.finished else len(state.history), note)

        return search(measure, how, budget, state, on_step)


def _metric_before_recovery(measure: ModelMeasure, budget: Budget, how: SearchOptions) -> float:
    """A target that can be met before training, with a policy like the one that will meet the real one after it.

    As far below the quantized model's full-depth metric as the real target is below the full-precision model's.
    """
    depth = measure.depth
    trace = measure.trace((budget.total_bits(depth, how) // depth,) * depth)
    needed = budget.needed_metric(trace)
    assert needed is not None
    return max(0.0, min(needed, trace.full_metric - max(0.0, trace.float_metric - needed)))


def _conclude(
    model: EarlyExitModel, quantized: QuantizedModel, result: SearchResult, budget: Budget, options: CompressOptions
) -> Compressed:
    quantized.set_block_bits(result.best.bits)
    plan = make_plan(result, exit_kinds=model.kinds, method=options.method, seed=options.seed, budget=budget)
    return Compressed(plan, quantized, result.trace, result.state.finished)


def _write(folder: Path, done: Compressed) -> None:
    save_quantized(done.quantized, folder)
    done.trace.save(folder / TRACE)
    done.plan.save(folder / PLAN)
    write_json(folder / PREPROCESSING, done.model.backbone.preprocessing.to_json())
