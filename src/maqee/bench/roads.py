"""How long an engine takes from one exit to the next: the cost that `maqee compress --cost` searches with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maqee.apq.road_times import RoadTimes
from maqee.bench.starting import numbers_of
from maqee.bench.timing import time_together
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.exits import NEVER, EarlyExitModel, Policy
from maqee.exits.segment import Kept
from maqee.runs import short_name
from maqee.runtime import ReadyModel, load, use_cuda_graphs


def profile(
    model: str | Path | ReadyModel,
    *,
    engine: str = "torch",
    batch: int = 8,
    device: str | None = None,
    stage: str | None = None,
    repeats: int = 20,
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
        device: the GPU if there is one.
        stage: of a trained run, the stage to time; the last one when left out.
        repeats: timed repetitions.
    """
    target = pick_device(device)
    if isinstance(model, ReadyModel):
        name, ready, target = "model", model, model.device
    else:
        name = short_name(Path(model))
        ready = load(model, device=str(target), stage=stage, engine=engine)
        if target.type == "cuda" and numbers_of(ready) != "simulated":
            use_cuda_graphs(ready.model)
    network = ready.model
    with torch.inference_mode():
        seconds = time_together(_jobs(network, batch, target), target, repeats)
    times = [1000 * value / batch for value in seconds]
    roads, over_closed = times[: len(network.exit_blocks)], times[len(network.exit_blocks) :]
    return RoadTimes(
        model=name,
        engine=ready.engine,
        device=_words(target),
        batch=batch,
        repeats=repeats,
        exit_blocks=network.exit_blocks,
        road_ms=tuple(roads),
        head_ms=saved_by_closing(roads, over_closed),
        shares=road_shares(network),
        environment=describe_environment(),
    )


def saved_by_closing(roads: Sequence[float], over_closed: Sequence[float]) -> tuple[float, ...]:
    """What closing each exit saves: two roads less the one over both, from nothing to the whole road to the exit.

    Args:
        roads: times to every exit and to full depth.
        over_closed: times of the roads that lead over each exit to the next.
    """
    found = zip(itertools.pairwise(roads), over_closed, strict=True)
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
