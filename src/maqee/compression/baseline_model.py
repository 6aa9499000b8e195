"""A baseline as a model: uniform bits by a method, the greedy choice of MPTQ, or the best uniform pair; trained or not.

Everything that a plan gets besides the search, a baseline can have too: the same calibration images, a calibration pass
to choose thresholds on, and the same recovery.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from maqee.apq import Budget, SearchOptions, Trace, greedy_bits, policy_figures, shared_threshold
from maqee.apq.objective import problem_within
from maqee.apq.records import Found
from maqee.apq.risks import measure_scales
from maqee.compression.compress_options import CompressOptions
from maqee.compression.envelope import all_pairs, uniform_pair
from maqee.compression.job import completed, fit_model, load_batches
from maqee.compression.model_measure import ModelMeasure
from maqee.compression.recovery import Recovery
from maqee.data import ImageSet
from maqee.errors import MaqeeError
from maqee.evaluation.calibration import draw_images
from maqee.exits import EarlyExitModel
from maqee.models.digest import weights_digest
from maqee.tasks import tasks
from maqee.widths import BitSettings


def fit_baseline(
    network: EarlyExitModel, calibration: ImageSet, options: CompressOptions, device: torch.device
) -> tuple[ModelMeasure, Trace]:
    """A method at uniform bits, MPTQ at the bits that it chooses; and a pass over calibration images at these bits.

    Args:
        network: the full-precision model, on the device.
        calibration: images that grids are fitted on, and others for the pass.
        options: method, bits, images, random seed and task.
        device: where the model lies.
    """
    fitting, measuring = draw_images(calibration, *options.draws)
    how = SearchOptions()
    greedy, widths = options.method == "mptq", tuple(range(how.bit_min, how.bit_max + 1))
    settings = replace(options.quantization, widths=widths) if greedy else options.quantization
    quantized = fit_model(network, fitting, settings, options, device)
    task = tasks[options.task or ""]
    digest = weights_digest(network)
    scored = options.scored if greedy else 0
    measure = ModelMeasure(network, quantized, load_batches(measuring, network), task, digest, scored)
    trace = measure.trace(measure.start)
    if not greedy:
        return measure, trace
    risks = measure.block_risks(measure.start, [widths] * measure.depth, path=False)
    total = options.quantization.weight_bits * measure.depth
    return measure, measure.trace(measure.start.with_weights(greedy_bits(trace, risks, total, how)))


def fit_best_pair(
    network: EarlyExitModel,
    calibration: ImageSet,
    options: CompressOptions,
    budget: Budget,
    how: SearchOptions,
    device: torch.device,
    known: BitSettings | None = None,
) -> tuple[ModelMeasure, Trace]:
    """The uniform pair of widths that is best within a budget with its own best shared threshold.

    Chosen on calibration images, as a plan is. A drop from what the quantized model can reach counts from the best
    pair's full depth.

    Args:
        network: the full-precision model, on the device.
        calibration: images that grids are fitted on, and others that choose.
        options: method, images, random seed and task.
        budget: what to keep to.
        how: the widths to choose from, as a search has them.
        device: where the model lies.
        known: the pair, where it was found before by the same inputs: the others are then not measured.
    """
    fitting, measuring = draw_images(calibration, *options.draws)
    weights, activations = range(how.bit_min, how.bit_max + 1), range(how.act_min, how.act_max + 1)
    settings = all_pairs(options.quantization, weights, activations)
    quantized = fit_model(network, fitting, settings, options, device)
    task = tasks[options.task or ""]
    digest = weights_digest(network)
    measure = ModelMeasure(network, quantized, load_batches(measuring, network), task, digest, scored=0)
    if known is not None:
        return measure, measure.trace(known)
    pairs = itertools.product(weights, activations)
    traces = [measure.trace(uniform_pair(quantized, *pair)) for pair in pairs]
    found = best_shared(traces, budget, how)
    best = max(range(len(traces)), key=lambda index: (-found[index].excess, -found[index].objective))
    quantized.set_widths(traces[best].bits)
    return measure, traces[best]


def best_shared(traces: Sequence[Trace], budget: Budget, how: SearchOptions) -> list[Found]:
    """The best shared threshold of every trace within a budget; objectives are in one unit and can be compared."""
    target = wanted(budget, how, traces[0].float_metric, max(trace.full_metric for trace in traces))
    scales = measure_scales(traces[0], traces[0], how)
    return [shared_threshold(problem_within(target, trace, scales, how)) for trace in traces]


def wanted(budget: Budget, how: SearchOptions, float_metric: float, quantized_metric: float) -> Budget:
    """The demands with every drop said as a metric; what uniform widths cost is not known here."""
    if budget.like is not None:
        raise MaqeeError("like: thresholds without a search of bits need the cost itself: ask for it (max_bops).")
    return budget.or_usual(how).resolved(float_metric, quantized_metric)


def recover_baseline(
    measure: ModelMeasure,
    trace: Trace,
    thresholds: Sequence[float],
    train: ImageSet,
    options: CompressOptions,
    folder: Path,
    device: torch.device,
) -> Trace:
    """Train a baseline as a plan is trained, and pass over the calibration images again.

    Args:
        measure: of the baseline.
        trace: its calibration pass.
        thresholds: a policy; the share of the images that leaves at an exit is the exit's weight in training.
        train: training images.
        options: steps, how to train, and the random seed.
        folder: where checkpoints of training lie.
        device: where to train.
    """
    options = completed(options, measure.reference)
    measure.quantized.set_widths(trace.bits)
    measure.quantized.settle()
    recovery = Recovery(measure.reference, train, measure.task, options.recovery, options.seed, folder, device)
    mass = policy_figures(trace, thresholds).exit_mass
    recovery(measure.quantized, trace.bits, mass, options.recovery_steps)
    return measure.trace(trace.bits)
