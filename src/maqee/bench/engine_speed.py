"""How fast each engine runs a model on the CPU: side by side in one run, each with the same exits taken."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maqee.bench.noise_models import asked_settings
from maqee.bench.resident import resident_bytes
from maqee.bench.result import BenchResult
from maqee.bench.throughput import mass_for_mean, policy_for_mass
from maqee.bench.timing import time_together
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy, add_exits
from maqee.exits.open_roads import run_roads
from maqee.exits.segment import RunSegment
from maqee.models import load_backbone
from maqee.models.load import backbone_from_json
from maqee.progress import phase
from maqee.quant import quantize
from maqee.quant.settings import QuantSettings
from maqee.runtime import load
from maqee.runtime.engines import onnxruntime_starter, openvino_starter
from maqee.runtime.export.exported import export
from maqee.runtime.outside import outside_segments
from maqee.runtime.ready import ReadyModel

MEAN_EXIT = 7.26
BASE = "torch float32, full depth"


@dataclass(frozen=True, kw_only=True)
class EngineRow:
    """One way to run the model.

    Attributes:
        engine: what runs it, and how.
        batch: images that go in together.
        mean_exit: mean block after which images leave.
        images_per_second: median over the repetitions.
        speedup: beside torch in float32 at full depth.
        resident: bytes that a process takes which does nothing else; None where that was not measured.
    """

    engine: str
    batch: int
    mean_exit: float
    images_per_second: float
    speedup: float
    resident: int | None


@dataclass(frozen=True, kw_only=True)
class EngineComparison(BenchResult):
    """Engines side by side.

    Attributes:
        model: run or backbone.
        method: by which it was quantized; "the run's" likewise.
        bits: of weights and activations; "the plan's" for a run.
        patch: of the patch embedding, or "float"; None for a run.
        common_steps: whether two groups of weights have a common step; None for a run.
        images: of a repetition.
        threads: that every engine was given.
        repeats: repetitions, in which the engines took turns.
        rows: one an engine and batch.
        missing: engines that there is no row for, and why.
    """

    model: str
    method: str
    bits: str
    patch: str | None = None
    common_steps: bool | None = None
    images: int
    threads: int
    repeats: int
    rows: tuple[EngineRow, ...]
    missing: Mapping[str, str]


class _Runner(NamedTuple):
    name: str
    run: Callable[[Tensor], Any]
    mean_exit: float


def bench_engines(
    model: str | Path = "vit-small",
    *,
    batch: Sequence[int] = (1, 8),
    mean_exit: float | None = None,
    method: str = "rtn",
    bits: str = "W4A4",
    patch: str | None = None,
    common_steps: bool = False,
    images: int = 16,
    memory: bool = True,
    repeats: int = 5,
    show: bool = True,
) -> EngineComparison:
    """Images a second of every engine on the CPU, beside torch in float32 at full depth.

    Images are noise: for each engine the thresholds are set on its own confidences such that the wanted shares leave,
    so that all take the same exits. Float models and those of others have the same shape and random weights.

    Args:
        model: a folder of `maqee compress`, or a backbone, which gets LGViT exits and random weights.
        batch: numbers of images that go in together.
        mean_exit: wanted mean block after which images leave; that of the run's plan, or 7.26, when left out.
        method: how a backbone is quantized; a run has its own. With "erq" there are two groups of weights and
            logarithmic probabilities, which take longer to run, and minutes to fit.
        bits: of a backbone's weights and activations; a run has its own.
        patch: of its patch embedding, such as "8/8"; float when left out.
        common_steps: let the two groups of weights that "erq" makes have a common step.
        images: of a repetition.
        memory: measure resident memory, too, in a process each.
        repeats: repetitions.
        show: say what is being done.
    """
    if min(batch) < 1 or max(batch) > images:
        raise MaqeeError(f"batch: {list(batch)} must be from 1 to the number of images, {images}.")
    onnxruntime_starter(), openvino_starter()  # both are needed, and better missed now than later
    from maqee.bench.peers import missing_peers  # not above: it imports both

    settings = asked_settings(bits, patch, None, common_steps)
    torch.manual_seed(0)
    with phase(f"opening {model}", show):
        compressed, wanted = _open(model, method, settings)
    network = compressed.model
    config = network.backbone.config
    noise = torch.randn(images, config.channels, *config.image_size)
    mass = mass_for_mean(network.exit_blocks, mean_exit or wanted)
    whole = EarlyExitModel(backbone_from_json(network.backbone.to_json(), str(model)), (), ()).eval()
    with tempfile.TemporaryDirectory() as place:
        with phase("exporting", show):
            places = _write(compressed, whole, Path(place)) if memory else {}
            runners, files = _runners(network, whole, noise, mass, Path(place))
        places |= {name: ("file", file) for name, file in files.items()} if memory else {}
        rows: list[EngineRow] = []
        for size in batch:
            jobs = [partial(_run_all, runner.run, noise, size) for runner in runners]
            with phase(f"timing at batch {size}", show), torch.inference_mode():
                times = time_together(jobs, torch.device("cpu"), repeats, warm_up=1)
            rows += [
                EngineRow(
                    engine=runner.name,
                    batch=size,
                    mean_exit=runner.mean_exit,
                    images_per_second=images / seconds,
                    speedup=times[0] / seconds,
                    resident=resident_bytes(*places[runner.name], size) if runner.name in places else None,
                )
                for runner, seconds in zip(runners, times, strict=True)
            ]
    made = compressed.compression is None
    return EngineComparison(
        model=str(model),
        method=method if made else "the run's",
        bits=bits if made else "the plan's",
        patch=(patch or "float") if made else None,
        common_steps=common_steps if made else None,
        images=images,
        threads=torch.get_num_threads(),
        repeats=repeats,
        rows=tuple(rows),
        missing={f"{name}, full depth": why for name, why in missing_peers().items()},
        environment=describe_environment(),
    )


def _open(model: str | Path, method: str, settings: QuantSettings) -> tuple[ReadyModel, float]:
    """A compressed model and the mean exit that it is to have."""
    if Path(model).is_dir():
        found = load(model)
        return found, found.plan.got.mean_exit
    network = add_exits(load_backbone(str(model)), "lgvit").eval()
    config = network.backbone.config
    fitted = quantize(network, torch.randn(2, config.channels, *config.image_size), method, settings)
    fitted.settle()
    assert isinstance(fitted.model, EarlyExitModel)
    policy = Policy.same(1.0, fitted.model.num_exits)  # all open, so that no road is left out
    return ReadyModel(fitted.model, policy), MEAN_EXIT


def _runners(
    network: EarlyExitModel, whole: EarlyExitModel, noise: Tensor, mass: np.ndarray, place: Path
) -> tuple[list[_Runner], dict[str, Path]]:
    """What is timed, torch in float32 first; and the files of those that others made."""
    from maqee.bench.peers import peer_files, start_peer
    from maqee.runtime.export.segment_files import segment_graphs

    depth = float(network.backbone.depth)
    float_graph = segment_graphs(whole)[0]
    found = [_Runner(BASE, whole.backbone, depth)]
    found.append(_under_policy("torch simulated, exits", network, network.segments, noise, mass))
    for name, starter in (("ONNX Runtime", onnxruntime_starter()), ("OpenVINO", openvino_starter())):
        single, segments = outside_segments(whole, starter[0], packed=True)[0], outside_segments(network, *starter)
        found.append(_Runner(f"{name} float32, full depth", partial(_call, single), depth))
        found.append(_under_policy(f"{name} integer codes, exits", network, segments, noise, mass))
    made = peer_files(float_graph.model, noise[: min(4, len(noise))], place)
    files = {f"{name}, full depth": file for name, file in made.items()}
    return found + [_Runner(name, start_peer(file), depth) for name, file in files.items()], files


def _call(segment: RunSegment, images: Tensor) -> Any:
    return segment(images, {})


def _under_policy(
    name: str, network: EarlyExitModel, segments: list[RunSegment], noise: Tensor, mass: np.ndarray
) -> _Runner:
    """A model that stops: thresholds by its own confidences, so that every engine takes the same exits."""
    x, confidences = noise, []
    kept: dict[int, Tensor] = {}
    with torch.inference_mode():
        for segment in segments:
            x, new, _, confidence = segment(x, kept)
            kept |= new
            confidences.append(confidence)
    policy = policy_for_mass(torch.stack(confidences)[:-1], mass)
    taken = policy.choose(torch.stack(confidences)[:-1].T.numpy())

    plain, network.segments = network.segments, segments
    roads, network.segments = network.roads(policy), plain
    return _Runner(name, partial(run_roads, roads, policy=policy), float(np.asarray(network.exit_blocks)[taken].mean()))


def _run_all(run: Callable[[Tensor], Any], images: Tensor, size: int) -> None:
    for batch in images.split(size):
        run(batch)


def _write(compressed: ReadyModel, whole: EarlyExitModel, place: Path) -> dict[str, tuple[str, Path]]:
    """Folders for processes that do nothing but run one engine."""
    whole.save(place / "torch")
    found = {BASE: ("torch", place / "torch")}
    single = ReadyModel(whole, Policy(()))
    for name, form in (("ONNX Runtime", "onnx"), ("OpenVINO", "openvino")):
        for model, words in ((single, "float32, full depth"), (compressed, "integer codes, exits")):
            folder = export(model, place / f"{form} {words}", form).folder
            found[f"{name} {words}"] = ("exported", folder)
    return found
