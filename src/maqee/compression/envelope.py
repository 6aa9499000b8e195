"""The best that uniform widths can do: every pair of weight and activation bits, every shared threshold.

A search that chooses widths layer by layer has to lie above this. The comparison is generous to the baselines: which
pair and which threshold to take at a cost is read off the test images themselves. What somebody gets who chooses the
threshold on calibration images, as a search must, stands beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from maqee.apq import BitSettings, Trace, exit_costs, least_cost_problem, shared_threshold
from maqee.apq.budget import USUAL_DROP
from maqee.compression.compress_options import CompressOptions
from maqee.compression.envelope_results import Envelope, UniformPair, points_of, upper_envelope
from maqee.compression.job import fit_model, load_batches
from maqee.compression.model_measure import ModelMeasure
from maqee.data import open_source
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.calibration import draw_images
from maqee.evaluation.kept_batches import keep_batches
from maqee.evaluation.record import Batch, evaluation_batches, exit_rows, measure_batches, policy_rows
from maqee.exits import load_with_exits
from maqee.models.digest import weights_digest
from maqee.policy import NEVER, Policy
from maqee.progress import phase, steps
from maqee.quant import QuantizedModel, QuantSettings
from maqee.quant import methods as known_methods
from maqee.runs import model_folder, require_data, require_folder, short_name, task_of
from maqee.tasks import Task, tasks
from maqee.widths import BitPair

SWEEP = (*(step / 50 for step in range(51)), NEVER)  # of the threshold that all exits share


def envelope(
    model: str | Path,
    methods: Sequence[str] = ("erq", "repq"),
    *,
    weights: Sequence[int] = (3, 4, 5, 6),
    activations: Sequence[int] = (3, 4, 5, 6, 7, 8),
    data: str | None = None,
    data_root: str | Path | None = None,
    options: CompressOptions | None = None,
    device: str | None = None,
) -> Envelope:
    """Uniform widths at shared thresholds on the test images, and the upper envelope of all of them (simulated).

    Thresholds of the envelope are swept on the test images, which favours these baselines: no plan may do that. Each
    pair therefore has a second figure too, at the shared threshold that calibration images choose.

    Every pair of ERQ is what a fit at that pair alone would be. RepQ and RTN fit the grids of activations to what the
    quantized layers before pass on: here these have the weight bits of `options.quantization`, or the first of
    `weights` if those are not among them, and the grids serve other weight bits too.

    Args:
        model: folder of a run of `maqee train`, of one of its stages, or of any model with exits.
        methods: quantization methods; each is fitted once for all pairs.
        weights: weight bits of blocks and exit heads.
        activations: their activation bits; every pair of the two is measured.
        data: name of the data set, if the folder does not say.
        data_root: where the data lie, if not where they were.
        options: task, calibration images, random seed, and bits of patch embedding and classifier.
        device: the GPU if there is one.
    """
    run, options = require_folder(Path(model)), options or CompressOptions()
    settings = all_pairs(options.quantization, weights, activations)
    _ = [known_methods[name] for name in methods]  # mistakes must not cost an hour
    task, target, folder = tasks[options.task or task_of(run)], pick_device(device), model_folder(run)
    network = load_with_exits(folder, task.confidence).to(target).eval()
    splits = open_source(require_data(run, data, data_root), network.backbone)
    for part in (splits.test, splits.calibration):
        part.require(task.targets, task.name)
    fitting, measuring = draw_images(splits.calibration, *options.draws)
    with phase("reading images"):
        calibration = load_batches(measuring, network)
        test = keep_batches(lambda: evaluation_batches(network, splits.test), len(splits.test))
    full_precision = exit_rows(network, measure_batches(network, test, task), task)
    pairs: list[UniformPair] = []
    wanted = list(itertools.product(sorted(set(weights)), sorted(set(activations))))
    with steps("measuring uniform widths", len(wanted) * len(methods)) as bar:
        for method in methods:
            quantized = fit_model(network, fitting, settings, replace(options, method=method), target)
            measure = ModelMeasure(network, quantized, calibration, task, "", scored=0)
            for pair in _measure_pairs(measure, wanted, test, task):
                pairs.append(pair)
                bar.update(len(pairs), f"{method} {pair.name}")
            del quantized, measure  # the next method needs the room
    points = (point for pair in pairs for point in points_of(pair, task.metric_name))
    return Envelope(
        model=short_name(folder),
        weights=weights_digest(network),
        data=splits.test.name,
        images=len(splits.test),
        calibration_images=len(measuring),
        seed=options.seed,
        fitted_weight_bits=settings.weight_bits,
        task=task,
        full_precision=tuple(full_precision),
        pairs=tuple(pairs),
        points=upper_envelope(points),
        environment=describe_environment(),
    )


def all_pairs(settings: QuantSettings, weights: Sequence[int], activations: Sequence[int]) -> QuantSettings:
    """The settings with every pair, which blocks, exit heads and mergings can then be switched to.

    Fitting is done at the settings' own weight bits where they are among those wanted.
    """
    for what, widths in (("weights", weights), ("activations", activations)):
        if not widths:
            raise MaqeeError(f"No bits are given for {what}: name at least one width from 2 to 8.")
        for bits in widths:
            if not 2 <= bits <= 8:
                raise MaqeeError(f"{what.capitalize()} of {bits} bits are impossible: a grid has 2 to 8 bits.")
    return replace(
        settings,
        weight_bits=settings.weight_bits if settings.weight_bits in weights else weights[0],
        act_bits=settings.act_bits if settings.act_bits in activations else activations[0],
        widths=tuple(weights),
        act_widths=tuple(activations),
        switched=("block", "head", "merge"),
        heads=None,
    )


def _measure_pairs(
    measure: ModelMeasure, wanted: Sequence[BitPair], test: Iterable[Batch], task: Task
) -> Iterator[UniformPair]:
    """One pass over the calibration images and one over the test images for each pair."""
    quantized, network = measure.quantized, measure.model
    shared = [Policy.same(threshold, network.num_exits) for threshold in SWEEP]
    for weight, activation in wanted:
        trace = measure.trace(uniform_pair(quantized, weight, activation))
        target = max(0.0, trace.full_metric - USUAL_DROP)
        policies = [*shared, Policy(choose_shared(trace, target))]
        measured = measure_batches(network, test, task, policies)
        *swept, chosen = policy_rows(network, measured, task, trace.bits, policies)
        yield UniformPair(
            method=quantized.method,
            pair=(weight, activation),
            exits=tuple(exit_rows(network, measured, task)),
            swept=tuple(swept),
            chosen=replace(chosen, calibration_target=round(target, 6)),
        )


def choose_shared(trace: Trace, target: float) -> tuple[float, ...]:
    """The cheapest threshold for all exits that keeps to a metric on the trace's samples."""
    return shared_threshold(least_cost_problem(trace, target, float(exit_costs(trace)[-1]))).thresholds


def uniform_pair(quantized: QuantizedModel, weight: int, activation: int) -> BitSettings:
    """A pair in everything that can be switched; patch embedding and classifier as they are."""
    now = quantized.bit_settings
    return replace(BitSettings.uniform(weight, activation, quantized.depth), patch=now.patch, classifier=now.classifier)
