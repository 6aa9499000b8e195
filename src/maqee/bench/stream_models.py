"""What `maqee bench stream` times: a model with exits, the same at full depth, and a float network beside them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maqee.apq.cost import total_macs, without_early_heads
from maqee.bench.noise_models import float_network, quantize_on_noise, same_shape, write_run
from maqee.bench.starting import at_full_depth, start_model
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy
from maqee.quant import QuantSettings
from maqee.runtime import ReadyModel, load
from maqee.runtime.engines import engines
from maqee.runtime.graphs import plain_segments

FULL = "full depth"
Full = Callable[[Tensor], Any]  # images to whatever comes out at full depth


class FullDepth(NamedTuple):
    """A network without stops.

    Attributes:
        name: what it is called.
        run: runs it.
        dtype: of its images.
    """

    name: str
    run: Full
    dtype: torch.dtype


class StreamModels(NamedTuple):
    """All that is timed.

    Attributes:
        ready: the model with exits, on its engine.
        full: the same at full depth.
        full_macs: multiply-accumulates of that, which runs no early heads.
        reference: a float network of the same shape at full depth; `full` itself where that is one.
        simulated: on the engine triton, parts without kernels, and why.
    """

    ready: ReadyModel
    full: FullDepth
    full_macs: float
    reference: FullDepth
    simulated: tuple[str, ...]


def open_model(
    model: str, exits: str, engine: str, method: str, settings: QuantSettings, seed: int, device: torch.device
) -> ReadyModel:
    """A model as it is loaded, not on its engine yet.

    Args:
        model: a folder, with exits, bits and weights of its own; or a backbone, for which the rest is meant.
        exits: heads of the exits that it gets.
        engine: on another one than torch it is quantized, on noise, and written and read as a user's run would be.
        method: how.
        settings: how finely.
        seed: of random weights and of the noise.
        device: where it is quantized.
    """
    _ = engines[engine]  # one that does not exist is named before anything is loaded
    if Path(model).is_dir():
        ready = load(model)
        _check_exits(ready.model, model)
        return ready
    with TemporaryDirectory() as place:
        if engine != "torch":
            _try_engine(engine, Path(place) / "miniature", device)
        network = float_network(model, exits, seed)
        _check_exits(network, model)
        if engine == "torch":
            return ReadyModel(network, Policy.never(network.num_exits))
        return load(write_run(quantize_on_noise(network, method, settings, device), Path(place) / "run"))


def start_models(
    ready: ReadyModel, engine: str, device: torch.device, dtype: torch.dtype, *, compile: bool, graphs: bool
) -> StreamModels:
    """Everything on its engine, as quick as it can be there; the arguments are those of `start_model`."""
    network = ready.model
    if engine == "torch":
        copied = replace(ready, model=copy.deepcopy(network))  # blocks are compiled in place, this one as a whole
        whole = start_model(copied, engine, device, dtype, compile=False, graphs=False).model
        full = FullDepth(FULL, _compiled(whole) if compile else whole, next(whole.parameters()).dtype)
        reference = full if ready.compression is None else _float_reference(network, device, compile)
    else:
        reference = _float_reference(network, device, compile)
        never = start_model(at_full_depth(ready), engine, device, dtype, compile=False, graphs=graphs)
        full = FullDepth(FULL, partial(never.model.run, policy=never.policy), torch.float32)
    ready = start_model(ready, engine, device, dtype, compile=compile, graphs=graphs)
    simulated = _parts_without_kernels(network) if engine == "triton" else ()
    return StreamModels(ready, full, macs_at_full_depth(network), reference, simulated)


def macs_at_full_depth(network: EarlyExitModel) -> float:
    """Multiply-accumulates of an image without the early heads."""
    return total_macs(without_early_heads(network.parts(), network.backbone.depth))


def _float_reference(network: EarlyExitModel, device: torch.device, compile: bool) -> FullDepth:
    """On a GPU bfloat16, compiled if that is wanted; on the CPU float32 as it is."""
    dtype, word = (torch.bfloat16, "bfloat16") if device.type == "cuda" else (torch.float32, "float32")
    plain = same_shape(network, early_heads=False).to(device, dtype)
    return FullDepth(f"{word} {FULL}", _compiled(plain) if compile and device.type == "cuda" else plain, dtype)


def _compiled(network: EarlyExitModel) -> Full:
    """Every number of images gets kernels of its own."""
    compiled: Full = torch.compile(network.forward, dynamic=False)
    return compiled


def _check_exits(network: EarlyExitModel, name: str) -> None:
    if not network.num_exits:
        raise MaqeeError(f"{name} has no exits, so that a stream gains nothing: add some with `maqee exits`.")


def _try_engine(engine: str, folder: Path, device: torch.device) -> None:
    """Load a miniature, so that an engine that cannot run here is missed now and not after minutes of fitting."""
    miniature = float_network("test-vit", "mlp", 0)
    write_run(quantize_on_noise(miniature, "rtn", QuantSettings(), torch.device("cpu")), folder)
    load(folder, device=str(device), engine=engine)


def _parts_without_kernels(network: EarlyExitModel) -> tuple[str, ...]:
    from maqee.runtime.kernels.swapping import KernelSegment  # not above: few have Triton

    roads = [road for road in plain_segments(network) if isinstance(road, KernelSegment)]
    lines = dict.fromkeys(line for road in roads for line in road.lines)
    return tuple(f"{line.name}: {line.how}" for line in lines if line.how.startswith("simulated"))
