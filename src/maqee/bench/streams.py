"""Early exit on many images: batch by batch, as a stream, and at full depth, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maqee.apq.cost import bops, closed_blocks, total_macs, utilization
from maqee.bench.noise_models import asked_settings
from maqee.bench.starting import numbers_of
from maqee.bench.stream_models import FULL, StreamModels, macs_at_full_depth, open_model, start_models
from maqee.bench.stream_results import StreamComparison, StreamRow, StreamWay
from maqee.bench.throughput import MEAN_EXITS, mass_for_mean, policy_for_mass
from maqee.bench.timing import time_together
from maqee.device import check_precision, pick_device, synchronize
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy
from maqee.models import presets
from maqee.models.compiling import many_versions
from maqee.processor import check_reduced_precision
from maqee.progress import phase, steps
from maqee.runs import short_name
from maqee.runtime import ReadyModel
from maqee.widths import FULL as FULL_PRECISION
from maqee.widths import BitSettings

FULL_BITS = FULL_PRECISION[0] * FULL_PRECISION[1]  # bit operations of a multiply-accumulate in full precision


class Job(NamedTuple):
    """A way to answer all images.

    Attributes:
        run: batches of images to an answer for each, in order.
        batches: the images, as it wants them.
    """

    run: Callable[[Iterable[Tensor]], Iterator[Any]]
    batches: Sequence[Tensor]


def bench_stream(
    model: str | Path = "vit-small",
    *,
    exits: str = "lgvit",
    engine: str = "torch",
    method: str = "erq",
    bits: str = "W4A4",
    patch: str | None = None,
    common_steps: bool = False,
    images: int | None = None,
    batch_size: int | None = None,
    mean_exits: Sequence[float] = MEAN_EXITS,
    precision: str | None = None,
    device: str | None = None,
    compile: bool = True,
    graphs: bool = True,
    batch_by_batch: bool = True,
    seed: int = 0,
    repeats: int = 3,
    show: bool = True,
) -> StreamComparison:
    """Images a second and latencies of a stream, of `run` batch by batch, and at full depth, with the cost in BOPs.

    Images are random, and thresholds are set on these very images, such that the wanted shares leave. Full depth is the
    network without early heads. "Ideal" is its time times the share of its multiply-accumulates that the policy needs,
    heads included. The reference is a float network of the same shape at full depth: in bfloat16, compiled, on a GPU,
    and in float32 on a CPU. For a float model on the engine torch it is full depth itself.

    Args:
        model: a backbone, which gets exits; or a folder of `maqee train` or `maqee compress`.
        exits: heads of the exits that a backbone gets.
        engine: what runs it (see `maqee.load`). On another one than torch a backbone is quantized first, on noise; a
            folder is what it is, and what follows is not for it.
        method: how a backbone is quantized.
        bits: of its weights and activations.
        patch: of its patch embedding, such as "8/8"; float when left out.
        common_steps: let the two groups of weights that "erq" makes have a common step.
        images: how many go through; 32 batches when left out.
        batch_size: 256 on a GPU and 8 on a CPU when left out.
        mean_exits: wanted mean blocks after which images leave.
        precision: "fp32" or "bf16" of a float model on the engine torch; bf16 on a GPU and fp32 on a CPU when left out.
        device: the GPU if there is one.
        compile: use torch.compile for what torch runs, the reference included.
        graphs: replay CUDA graphs between exits, on a GPU with the engines torch and triton.
        batch_by_batch: time `run` too. On a GPU it is recorded for every number of images that is left at an exit:
            minutes for a large network. A stream has full batches only.
        seed: of random weights and images.
        repeats: timed repetitions.
        show: progress with the time left.
    """
    target = pick_device(device)
    on_gpu = target.type == "cuda"
    settings = asked_settings(bits, patch, None, common_steps)
    asked = None if precision is None else check_precision(precision)
    batch_size = batch_size or (256 if on_gpu else 8)
    with phase(f"opening {model}", show):
        ready = open_model(str(model), exits, engine, method, settings, seed, target)
    precision = _precision_of(ready, engine, asked, on_gpu)
    check_reduced_precision(precision, target)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    with many_versions() if compile else nullcontext():
        with phase("starting", show):
            models = start_models(ready, engine, target, dtype, compile=compile, graphs=graphs)
            count = images or 32 * batch_size
            batches = _noise(models, count, batch_size, seed, target)
            confidences = _confidences(models.ready.model, batches[models.full.dtype])
        rows: list[StreamRow] = []
        with steps("timing mean exits", len(mean_exits), enabled=show) as bar:
            for mean_exit in mean_exits:
                mass = mass_for_mean(models.ready.model.exit_blocks, mean_exit)
                stopping = models.ready.with_policy(policy_for_mass(confidences, mass))
                jobs = _jobs(models, stopping, batches, batch_size, batch_by_batch)
                rows.append(_measure(models, stopping.policy, jobs, target, repeats))
                bar.update(len(rows))
    network = models.ready.model
    made = models.ready.compression is not None and not Path(model).is_dir()
    planned = models.ready.compression is not None and not made
    return StreamComparison(
        model=short_name(model),
        weights="random" if str(model) in presets else "stored",
        exit_blocks=network.exit_blocks,
        exit_kinds=network.kinds,
        engine=engine,
        quantization=numbers_of(models.ready),
        method="the run's" if planned else method if made else None,
        bits="the plan's" if planned else bits if made else None,
        patch=_bits_of(models.ready).patch,
        common_steps=common_steps if made else None,
        simulated=models.simulated,
        images=count,
        batch_size=batch_size,
        precision=precision,
        compiled=compile and engine == "torch",
        cuda_graphs=graphs and on_gpu,
        device=target.type,
        reference=models.reference.name,
        repeats=repeats,
        rows=tuple(rows),
        environment=describe_environment(),
    )


def _precision_of(ready: ReadyModel, engine: str, asked: str | None, on_gpu: bool) -> str:
    """What a model that is not quantized is computed in; what is not quantized of another one is float32."""
    if engine == "torch" and ready.compression is None:
        return asked or ("bf16" if on_gpu else "fp32")
    if asked == "bf16":
        raise MaqeeError("precision: bf16 is for float models on the engine torch, and this is another: leave it out.")
    return "fp32"


def _noise(
    models: StreamModels, count: int, batch_size: int, seed: int, device: torch.device
) -> dict[torch.dtype, Sequence[Tensor]]:
    """The same images in every precision that is needed."""
    config = models.ready.model.backbone.config
    torch.manual_seed(seed)
    images = torch.randn(count, config.channels, *config.image_size, device=device)
    wanted = {models.full.dtype, models.reference.dtype}
    return {dtype: images.to(dtype).split(batch_size) for dtype in wanted}


def _jobs(
    models: StreamModels,
    stopping: ReadyModel,
    batches: dict[torch.dtype, Sequence[Tensor]],
    batch_size: int,
    batch_by_batch: bool,
) -> dict[str, Job]:
    """Every way by its name, the reference first where it is another network."""
    full = batches[models.full.dtype]
    networks = {network.name: network for network in (models.reference, models.full)}
    jobs = {name: Job(partial(map, network.run), batches[network.dtype]) for name, network in networks.items()}
    if batch_by_batch:
        jobs["run"] = Job(partial(map, stopping.run), full)
    return {**jobs, "stream": Job(partial(stopping.stream, batch=batch_size), full)}


def _bits_of(ready: ReadyModel) -> BitSettings:
    """Widths of everything; float is 32."""
    if ready.compression is not None:
        return ready.quantized.bit_settings
    return BitSettings.uniform(*FULL_PRECISION, ready.model.backbone.depth)


@torch.inference_mode()
def _confidences(network: EarlyExitModel, batches: Sequence[Tensor]) -> Tensor:
    """How sure every exit is of every image, from the roads themselves: (exits, images)."""
    found: list[Tensor] = []
    for batch in batches:
        x, kept, here = batch, dict[int, Tensor](), list[Tensor]()
        for segment in network.segments[:-1]:
            x, new, _, confidence = segment(x, kept)
            kept |= new
            here.append(confidence.float().cpu())
        found.append(torch.stack(here))
    return torch.cat(found, dim=1)


def _measure(
    models: StreamModels, policy: Policy, jobs: dict[str, Job], device: torch.device, repeats: int
) -> StreamRow:
    """All ways in turn for throughput, then each once more for latencies."""
    network = models.ready.model
    count = sum(len(batch) for batch in jobs["stream"].batches)
    with torch.inference_mode():
        times = time_together([partial(_drain, job) for job in jobs.values()], device, repeats, warm_up=1)
        waits = [_latencies(job, device) for job in jobs.values()]
        streamed = jobs["stream"]
        taken = torch.cat([answer.exit for answer in streamed.run(streamed.batches)]).cpu().numpy()
    seconds = dict(zip(jobs, times, strict=True))
    mass = np.bincount(taken, minlength=network.num_exits + 1) / count
    reach = utilization(mass.tolist(), network.exit_blocks, network.backbone.depth)
    closed = closed_blocks(policy.thresholds, network.exit_blocks)
    share = total_macs(network.parts(), reach, closed) / models.full_macs
    ideal = count / (seconds[FULL] * share)
    cost = bops(network.parts(), _bits_of(models.ready), reach, closed)
    ways = []
    for name, latencies in zip(jobs, waits, strict=True):
        p50, p95, p99 = (float(value) for value in np.percentile(latencies, (50, 95, 99)) * 1e3)
        rate = count / seconds[name]
        ways.append(
            StreamWay(
                name=name,
                images_per_second=rate,
                times_reference=seconds[models.reference.name] / seconds[name],
                share_of_ideal=rate / ideal,
                p50_ms=p50,
                p95_ms=p95,
                p99_ms=p99,
            )
        )
    return StreamRow(
        mean_exit=float(mass @ np.asarray(network.exit_blocks)),
        exit_mass=tuple(mass.tolist()),
        macs_share=share,
        bops=cost,
        bops_share=cost / (FULL_BITS * macs_at_full_depth(network)),
        ideal_images_per_second=ideal,
        ways=tuple(ways),
    )


def _drain(job: Job) -> None:
    """Let all images through."""
    for _ in job.run(job.batches):
        pass


def _latencies(job: Job, device: torch.device) -> np.ndarray:
    """Seconds from when each image is taken from its source to when its batch's answers are there."""
    entered: list[float] = []

    def source() -> Iterator[Tensor]:
        for batch in job.batches:
            entered.append(time.perf_counter())
            yield batch

    left = []
    for _ in job.run(source()):
        synchronize(device)
        left.append(time.perf_counter())
    waited = np.asarray(left) - np.asarray(entered)
    return np.repeat(waited, [len(batch) for batch in job.batches])
