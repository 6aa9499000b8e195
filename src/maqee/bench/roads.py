"""How long an engine takes from one exit to the next: the cost that `maqee compress --cost` searches with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from maqee.apq.road_times import RoadTimes
from maqee.apq.timed_pairs import TimedPair
from maqee.bench.noise_models import asked_settings, quantize_on_noise, write_run
from maqee.bench.starting import numbers_of
from maqee.bench.timing import time_together
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.quantization_cases import parse_widths
from maqee.exits import NEVER, EarlyExitModel, Policy
from maqee.exits.segment import Kept
from maqee.progress import phase
from maqee.quant import QuantSettings
from maqee.runs import short_name
from maqee.runtime import ReadyModel, load, use_cuda_graphs


def profile(
    model: str | Path | ReadyModel,
    *,
    engine: str = "torch",
    batch: int = 8,
    bits: Sequence[str] = (),
    method: str = "erq",
    patch: str | None = None,
    common_steps: bool = False,
    device: str | None = None,
    stage: str | None = None,
    repeats: int = 20,
    show: bool = True,
) -> RoadTimes:
    """Time every road between two exits: the blocks, the head at the end and, for the first, the embedding.

    Beside them, every road that leads over one closed exit is timed, which tells what closing that exit saves. All
    images of the batch walk all roads, so that every road is timed at the whole batch. Roads take turns, and the median
    of their times counts, so that what disturbs one disturbs all. Pixels are random: time does not depend on them. On a
    GPU the roads of a model from a folder are recorded as CUDA graphs, which is how many images are best run: else
    starting kernels takes longer than most of them do.

    Args:
        model: folder of a compressed model or a trained run, or a model that was loaded, with its engine, as it is.
        engine: what runs a model from a folder.
        batch: images at a time.
        bits: pairs of widths such as "W4A4", for a trained run: it is quantized with each, on noise, and all of them
            take turns.
        method: how it is quantized then.
        patch: bits of the patch embedding then, such as "8/8"; float when left out.
        common_steps: let the two groups of weights that "erq" makes have a common step.
        device: the GPU if there is one.
        stage: of a trained run, the stage to time; the last one when left out.
        repeats: timed repetitions.
        show: say what is being done.
    """
    target = pick_device(device)
    pairs = sorted({parse_widths(text) for text in bits})
    if isinstance(model, ReadyModel):
        if pairs:
            raise MaqeeError("bits: a model that was loaded has its own: give the folder of a trained run.")
        name, target, models = "model", model.device, [model]
    else:
        name = short_name(Path(model))
        if pairs:
            settings = [asked_settings("W{}A{}".format(*pair), patch, None, common_steps) for pair in pairs]
            models = _quantized(Path(model), stage, engine, method, settings, target, show)
        else:
            models = [load(model, device=str(target), stage=stage, engine=engine)]
        for ready in models:
            if target.type == "cuda" and numbers_of(ready) != "simulated":
                use_cuda_graphs(ready.model)
    with phase("timing", show), torch.inference_mode():
        jobs = [_jobs(ready.model, batch, target) for ready in models]
        seconds = iter(time_together([job for one in jobs for job in one], target, repeats))
    exits = models[0].model.exit_blocks
    found = [_road_times([1000 * next(seconds) / batch for _ in one], len(exits)) for one in jobs]
    road_ms, head_ms = min(found, key=lambda times: sum(times[0]))
    timed = [
        TimedPair("W{}A{}".format(*pair), tuple(accumulate(roads)))
        for pair, (roads, _) in zip(pairs, found, strict=bool(pairs))
    ]
    return RoadTimes(
        model=name,
        engine=models[0].engine,
        device=_words(target),
        batch=batch,
        repeats=repeats,
        exit_blocks=exits,
        road_ms=road_ms,
        head_ms=head_ms,
        shares=road_shares(models[0].model),
        environment=describe_environment(),
        pairs=tuple(sorted(timed, key=lambda pair: pair.exit_ms[-1])),
    )


def _quantized(
    folder: Path,
    stage: str | None,
    engine: str,
    method: str,
    settings: Sequence[QuantSettings],
    device: torch.device,
    show: bool,
) -> list[ReadyModel]:
    """The model of a trained run, quantized with each of several settings, as it is loaded on an engine."""
    trained = load(folder, stage=stage)
    if trained.compression is not None:
        raise MaqeeError(f"bits: {folder} holds a compressed model, which has its own: give a trained run.")
    models: list[ReadyModel] = []
    with TemporaryDirectory() as place:
        for index, one in enumerate(settings):
            with phase(f"quantizing to W{one.weight_bits}A{one.act_bits}", show):
                quantized = quantize_on_noise(copy.deepcopy(trained.model), method, one, device)
                run = write_run(quantized, Path(place, str(index)), trained.task_name)
                models.append(load(run, device=str(device), engine=engine))
    return models


def _road_times(times: Sequence[float], exits: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of the times of a model's jobs those of its roads, and what closing each exit saves."""
    roads, over_closed = times[:exits], times[exits:]
    return tuple(roads), saved_by_closing(roads, over_closed)


def saved_by_closing(roads: Sequence[float], over_closed: Sequence[float]) -> tuple[float, ...]:
    """What closing each exit saves: two roads less the one over both, from nothing to the whole road to the exit.

    Args:
        roads: times to every exit and to full depth.
        over_closed: times of the roads that lead over each exit to the next.
    """
    found = zip(pairwise(roads), over_closed, strict=True)
    return tuple(min(max(first + second - both, 0.0), first) for (first, second), both in found)


def road_shares(network: EarlyExitModel) -> tuple[float, ...]:
    """Share of the multiply-accumulates of all roads that each one has, heads and embedding included."""
    parts, ends = network.parts(), network.exit_blocks
    last = len(ends) - 1
    macs = [0] * len(ends)
    for part in parts:
        where = 0 if part.kind == "patch" else last if part.kind == "classifier" else _road_of(part.block, ends)
        macs[where] += part.macs
    return tuple(value / sum(macs) for value in macs)


def _road_of(block: int, ends: tuple[int, ...]) -> int:
    return next(index for index, end in enumerate(ends) if block <= end)


def _jobs(network: EarlyExitModel, batch: int, device: torch.device) -> list[Callable[[], Any]]:
    """Every road on what the road before leaves behind; then those that lead over one closed exit each."""
    config = network.backbone.config
    random = torch.Generator().manual_seed(0)
    x: Tensor = torch.randn(batch, config.channels, *config.image_size, generator=random).to(device)
    kept: Kept = {}
    jobs: list[Callable[[], Any]] = []
    over_closed: list[Callable[[], Any]] = []
    for index, road in enumerate(network.segments):
        jobs.append(partial(road, x, kept))
        if index < network.num_exits:
            closing = Policy(tuple(NEVER if other == index else 0.0 for other in range(network.num_exits)))
            over_closed.append(partial(network.roads(closing)[index].segment, x, kept))
        found = road(x, kept)
        x, kept = found.x.clone(), {**kept, **{block: tokens.clone() for block, tokens in found.kept.items()}}
    return jobs + over_closed


def _words(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device} with {threads} thread{'s' if threads > 1 else ''}"
