"""Early exit on many images: batch by batch, as a stream, and at full depth, side by side."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maqee.apq.cost import total_macs, utilization
from maqee.bench.result import BenchResult
from maqee.bench.throughput import MEAN_EXITS, mass_for_mean, policy_for_mass
from maqee.bench.timing import time_together
from maqee.device import check_precision, pick_device, synchronize
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy, add_exits
from maqee.models import load_backbone
from maqee.models.compiling import compile_each
from maqee.parts import Part
from maqee.processor import check_reduced_precision
from maqee.runtime import ReadyModel, load, use_cuda_graphs

Job = Callable[[Iterable[Tensor]], Iterator[Any]]  # batches of images to an answer for each, in order


@dataclass(frozen=True, kw_only=True)
class StreamWay:
    """One way to answer all images.

    Attributes:
        name: "full depth", "run" (batch by batch) or "stream".
        images_per_second: over all images.
        share_of_ideal: of the images a second that the policy could give.
        p50_ms: median time from when an image is taken from its source to when its batch has its answers.
        p95_ms: within which 95 of 100 images are answered.
        p99_ms: within which 99 of 100 are.
    """

    name: str
    images_per_second: float
    share_of_ideal: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, kw_only=True)
class StreamRow:
    """One policy.

    Attributes:
        mean_exit: mean block after which images leave.
        exit_mass: share of the images that leaves at each exit and at full depth.
        macs_share: multiply-accumulates that the policy needs, heads included, as a share of full depth's.
        ideal_images_per_second: those of full depth, divided by that share.
        ways: what was reached.
    """

    mean_exit: float
    exit_mass: tuple[float, ...]
    macs_share: float
    ideal_images_per_second: float
    ways: tuple[StreamWay, ...]


@dataclass(frozen=True, kw_only=True)
class StreamComparison(BenchResult):
    """Streams, executed, against batches and full depth.

    Attributes:
        model: its name.
        engine: what ran it.
        images: how many went through, in each way.
        batch_size: of them at a time.
        precision: fp32 or bf16; of a compressed model, that of what is not quantized.
        compiled: whether pieces, and full depth as a whole, were compiled.
        cuda_graphs: whether graphs were replayed between exits.
        device: where it ran.
        executed: True; exits are really taken.
        rows: one a policy.
    """

    model: str
    engine: str
    images: int
    batch_size: int
    precision: str
    compiled: bool
    cuda_graphs: bool
    device: str
    executed: bool = True
    rows: tuple[StreamRow, ...]


def bench_stream(
    model: str | Path = "vit-small",
    *,
    exits: str = "lgvit",
    engine: str = "torch",
    images: int | None = None,
    batch_size: int | None = None,
    mean_exits: Sequence[float] = MEAN_EXITS,
    precision: str | None = None,
    device: str | None = None,
    compile: bool = True,
    graphs: bool = True,
    repeats: int = 3,
) -> StreamComparison:
    """Images a second and latencies of a stream, of `run` batch by batch, and at full depth.

    Images are random, and thresholds are set on these very images, such that the wanted shares leave. "Ideal" is the
    time of full depth times the share of its multiply-accumulates that the policy needs, heads included. Full depth
    is the network without early heads; on another engine than torch, which has whole roads only, it is the network
    that never stops, and its heads count on both sides.

    Args:
        model: a backbone, which gets exits; or a folder of `maqee train` or `maqee compress`.
        exits: heads of the exits that a backbone gets.
        engine: what runs a folder's model (see `maqee.load`).
        images: how many go through; 32 batches when left out.
        batch_size: 256 on a GPU and 8 on a CPU when left out.
        mean_exits: wanted mean blocks after which images leave.
        precision: "fp32" or "bf16"; bf16 on a GPU and fp32 on a CPU when left out.
        device: the GPU if there is one.
        compile: use torch.compile, on the engine torch.
        graphs: replay CUDA graphs between exits, on a GPU with the engine torch.
        repeats: timed repetitions.
    """
    target = pick_device(device)
    on_gpu, plain = target.type == "cuda", engine == "torch"
    precision = check_precision(precision or ("bf16" if on_gpu else "fp32"))
    check_reduced_precision(precision, target)
    batch_size = batch_size or (256 if on_gpu else 8)
    ready = _open(model, exits, engine, target)
    network = ready.model
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if ready.compression is None:
        network.to(dtype)
    if not network.num_exits:
        raise MaqeeError(f"{model} has no exits, so that a stream gains nothing: add some with `maqee exits`.")
    config = network.backbone.config
    torch.manual_seed(0)
    count = images or 32 * batch_size
    batches = torch.randn(count, config.channels, *config.image_size, device=target, dtype=dtype).split(batch_size)
    never = Policy.never(network.num_exits)
    full: Callable[[Tensor], Any] = network.forward if plain else partial(network.run, policy=never)
    if plain and compile:
        full = torch.compile(copy.deepcopy(network).forward)
    if plain:
        quicken(network, compile=compile, graphs=graphs and on_gpu)
    confidences = _confidences(network, batches)
    rows = []
    for mean_exit in mean_exits:
        policy = policy_for_mass(confidences, mass_for_mean(network.exit_blocks, mean_exit))
        stopping = ready.with_policy(policy)
        jobs: dict[str, Job] = {
            "full depth": partial(map, full),
            "run": partial(map, stopping.run),
            "stream": partial(stopping.stream, batch=batch_size),
        }
        rows.append(_measure(network, jobs, batches, target, repeats, _full_macs(network) if plain else None))
    return StreamComparison(
        model=Path(model).name,
        engine=engine,
        images=count,
        batch_size=batch_size,
        precision=precision,
        compiled=compile and plain,
        cuda_graphs=graphs and on_gpu and plain,
        device=target.type,
        rows=tuple(rows),
        environment=describe_environment(),
    )


def quicken(network: EarlyExitModel, *, compile: bool, graphs: bool) -> None:
    """Make the roads of a network as quick as torch can, in place: compiled pieces, and CUDA graphs on a GPU."""
    if compile:
        compile_each(network.compilable(), dynamic=True)
    if graphs:
        use_cuda_graphs(network)


def _open(model: str | Path, exits: str, engine: str, device: torch.device) -> ReadyModel:
    if Path(model).is_dir():
        return load(model, device=str(device), engine=engine)
    if engine != "torch":
        raise MaqeeError(f"The engine {engine} runs what maqee wrote: give a run folder, not {model}.")
    torch.manual_seed(0)
    network = add_exits(load_backbone(model), exits).to(device).eval()
    return ReadyModel(network, Policy.never(network.num_exits))


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


def _full_macs(network: EarlyExitModel) -> float:
    """Of the network without its early heads."""
    depth = network.backbone.depth
    parts: list[Part] = [part for part in network.parts() if part.kind != "head" or part.block == depth]
    return total_macs(parts)


def _measure(
    network: EarlyExitModel,
    jobs: dict[str, Job],
    batches: Sequence[Tensor],
    device: torch.device,
    repeats: int,
    full_macs: float | None,
) -> StreamRow:
    """All ways in turn for throughput, then each once more for latencies."""
    count = sum(len(batch) for batch in batches)
    with torch.inference_mode():
        seconds = time_together([partial(_drain, job, batches) for job in jobs.values()], device, repeats, warm_up=1)
        waits = [_latencies(job, batches, device) for job in jobs.values()]
        taken = torch.cat([answer.exit for answer in jobs["stream"](batches)]).cpu().numpy()
    mass = np.bincount(taken, minlength=network.num_exits + 1) / count
    reach = utilization(mass.tolist(), network.exit_blocks, network.backbone.depth)
    share = total_macs(network.parts(), reach) / (full_macs or total_macs(network.parts()))
    ideal = count / (seconds[0] * share)
    ways = []
    for name, took, latencies in zip(jobs, seconds, waits, strict=True):
        p50, p95, p99 = (float(value) for value in np.percentile(latencies, (50, 95, 99)) * 1e3)
        rate = count / took
        ways.append(
            StreamWay(
                name=name, images_per_second=rate, share_of_ideal=rate / ideal, p50_ms=p50, p95_ms=p95, p99_ms=p99
            )
        )
    return StreamRow(
        mean_exit=float(mass @ np.asarray(network.exit_blocks)),
        exit_mass=tuple(mass.tolist()),
        macs_share=share,
        ideal_images_per_second=ideal,
        ways=tuple(ways),
    )


def _drain(job: Job, batches: Sequence[Tensor]) -> None:
    """Let all images through."""
    for _ in job(batches):
        pass


def _latencies(job: Job, batches: Sequence[Tensor], device: torch.device) -> np.ndarray:
    """Seconds from when each image is taken from its source to when its batch's answers are there."""
    entered: list[float] = []

    def source() -> Iterator[Tensor]:
        for batch in batches:
            entered.append(time.perf_counter())
            yield batch

    left = []
    for _ in job(source()):
        synchronize(device)
        left.append(time.perf_counter())
    waited = np.asarray(left) - np.asarray(entered)
    return np.repeat(waited, [len(batch) for batch in batches])
