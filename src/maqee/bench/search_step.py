"""What the search for bits costs, in passes over the calibration images and in seconds.

The default search, for widths of weights and activations, is run as a whole. One of its iterations is one allocation or
one move: the pass, the policy for it, and what to try next. A calibration pass is timed in between, again and again, so
that what disturbs one disturbs the other.

A step of the search for weights alone measures the model at the bits at hand, and every block at one bit less and one
more. The plain way is one pass for the bits as they are and one for each block with another width; it is run too, on
the same images, for comparison.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch

from maqee.apq import BitSettings, Budget, SearchOptions, SearchState, search
from maqee.bench.result import BenchResult
from maqee.bench.threshold_search import ThresholdTiming, search_speed
from maqee.bench.timing import time_together
from maqee.compression.job import searched_widths
from maqee.compression.model_measure import ModelMeasure
from maqee.device import pick_device, synchronize
from maqee.environment import describe_environment
from maqee.evaluation.record import Batch, evaluation_batch
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.quant import QuantSettings, quantize
from maqee.tasks import tasks

FIT_IMAGES = 8  # how well the grids fit does not change what they cost


@dataclass(frozen=True)
class StepTiming:
    """What a step costs: passes over the calibration images, seconds, and seconds as a multiple of a pass."""

    passes: float
    seconds: float
    of_a_pass: float


@dataclass(frozen=True, kw_only=True)
class SearchTiming(BenchResult):
    """The search for bits, and single steps of it.

    Attributes:
        model: its name.
        exits: heads of its exits.
        method: quantization method.
        samples: calibration images.
        scored: those of them that single blocks are run on.
        blocks: depth of the model.
        device: where it ran.
        threads: number of processor threads.
        pass_seconds: one calibration pass.
        iteration: one allocation or move of the default search, the median of all.
        whole: the default search from start to end.
        step: one step of the search for weights alone.
        plain: the same by running the whole model anew for every block.
        arrays: searches for thresholds on arrays.
    """

    model: str
    exits: str
    method: str
    samples: int
    scored: int
    blocks: int
    device: str
    threads: int
    pass_seconds: float
    iteration: StepTiming
    whole: StepTiming
    step: StepTiming
    plain: StepTiming
    arrays: ThresholdTiming

    def to_json(self) -> dict[str, Any]:
        """Plain values; the environment stands there once."""
        values = super().to_json()
        del values["arrays"]["environment"]
        return values


def bench_search(
    model: str = "vit-tiny",
    *,
    exits: str = "lgvit",
    samples: int = 128,
    scored: int | None = None,
    method: str = "erq",
    repeats: int = 3,
    threads: int | None = None,
    device: str | None = None,
    array_samples: int = 10_000,
) -> SearchTiming:
    """Time the default search, one step for weights alone, one calibration pass and the plain way.

    Weights and images are random; the right answers are those of the full-precision model.

    Args:
        model: a backbone.
        exits: heads of its exits.
        samples: calibration images.
        scored: images that single blocks are run on; half of the samples when left out, as `maqee compress` does.
        method: quantization method.
        repeats: times that pass and step are timed, in turns; the plain way is timed once.
        threads: number of processor threads; torch's own choice when left out.
        device: the GPU if there is one.
        array_samples: samples of the searches on arrays that are timed beside.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    target = pick_device(device)
    measure = _make_measure(model, exits, samples, scored or max(1, samples // 2), method, target)
    bits = measure.start
    counted: list[float] = []

    def step() -> None:
        before = measure.passes
        one_step(measure, bits)
        counted.append(measure.passes - before)

    passes, steps = time_together([lambda: calibration_pass(measure, bits), step], target, repeats, warm_up=1)
    iteration, whole = time_search(measure, target)
    [plain] = time_together([lambda: plain_step(measure, bits)], target, 1, warm_up=0)
    return SearchTiming(
        model=model,
        exits=exits,
        method=method,
        samples=samples,
        scored=measure.scored,
        blocks=measure.depth,
        device=target.type,
        threads=torch.get_num_threads(),
        pass_seconds=passes,
        iteration=iteration,
        whole=whole,
        step=StepTiming(counted[-1], steps, steps / passes),
        plain=StepTiming(measure.depth + 1, plain, plain / passes),
        arrays=search_speed(array_samples),
        environment=describe_environment(),
    )


@torch.inference_mode()
def calibration_pass(measure: ModelMeasure, bits: BitSettings) -> None:
    """Every exit of the quantized model on every calibration image; nothing is kept or compared."""
    measure.quantized.set_widths(bits)
    for images, _ in measure.batches:
        measure.model.forward_all(images)


def time_search(
    measure: ModelMeasure, device: torch.device, options: SearchOptions | None = None
) -> tuple[StepTiming, StepTiming]:
    """One iteration and the whole of the default search, with a calibration pass after every step to compare with."""
    seconds: list[float] = []  # of every step, the start included
    counts: list[float] = []  # passes of every step
    iterations: list[int] = []  # steps that are allocations or moves
    others: list[float] = []  # seconds of calibration passes in between
    before = measure.passes

    def clock() -> float:
        synchronize(device)
        return time.perf_counter()

    mark = clock()

    def on_step(state: SearchState) -> None:
        nonlocal mark, before
        now = clock()
        seconds.append(now - mark)
        counts.append(measure.passes - before)
        last = state.history[-1]
        if counts[-1] and (last.kind == "move" or last.spent is not None):
            iterations.append(len(seconds) - 1)
        calibration_pass(measure, measure.start)
        mark, before = clock(), measure.passes
        others.append(mark - now)

    search(measure, options, Budget(), on_step=on_step)
    one = statistics.median(others)
    each = statistics.median(seconds[index] for index in iterations)
    whole = sum(seconds)
    return (
        StepTiming(statistics.median(counts[index] for index in iterations), each, each / one),
        StepTiming(sum(counts), whole, whole / one),
    )


def one_step(measure: ModelMeasure, bits: BitSettings) -> None:
    """What the search for weights alone asks after every change of bits."""
    options = SearchOptions()
    widths = [[w for w in (b - 1, b, b + 1) if options.bit_min <= w <= options.bit_max] for b in bits.block_weights]
    measure.trace(bits)
    measure.block_risks(bits, widths, path=False)


def plain_step(measure: ModelMeasure, bits: BitSettings) -> None:
    """The whole network anew for every block with one bit more."""
    measure.trace(bits)
    weights = bits.block_weights
    for block in range(measure.depth):
        measure.trace(bits.with_weights((*weights[:block], weights[block] + 1, *weights[block + 1 :])))


def _make_measure(model: str, exits: str, samples: int, scored: int, method: str, device: torch.device) -> ModelMeasure:
    torch.manual_seed(0)
    network: EarlyExitModel = add_exits(load_backbone(model), exits).to(device).eval()
    config, size = network.backbone.config, evaluation_batch(network.backbone)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(samples, config.channels, *config.image_size, generator=generator).to(device)
    with torch.inference_mode():
        batches: list[Batch] = [(batch, network(batch).argmax(dim=-1)) for batch in images.split(size)]
    quantized = quantize(network, images[:FIT_IMAGES], method, searched_widths(QuantSettings(), SearchOptions()))
    return ModelMeasure(network, quantized, batches, tasks["classification"], "", scored)
