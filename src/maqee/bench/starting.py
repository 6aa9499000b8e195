"""Models made ready to be timed: on their engine, at full depth or with exits, as quick as they can be there."""

from __future__ import annotations

from dataclasses import replace

import torch

from maqee.exits import EarlyExitModel, Policy
from maqee.runtime import ReadyModel, compile_roads, use_cuda_graphs
from maqee.runtime.engines import use_engine


def start_model(
    ready: ReadyModel, engine: str, device: torch.device, dtype: torch.dtype, *, compile: bool, graphs: bool
) -> ReadyModel:
    """A model as it was loaded on its engine, in place.

    Args:
        ready: the model.
        engine: what runs it.
        device: where.
        dtype: of a model that is not compressed, on the engine torch.
        compile: use torch.compile on the engine torch.
        graphs: on a GPU, replay the roads between exits as CUDA graphs, on torch and triton.
    """
    if engine == "torch" and ready.compression is None:
        ready.model.to(dtype)
    ready = use_engine(ready, engine, device)
    if compile and engine == "torch":
        compile_roads(ready.model)
    if graphs and device.type == "cuda":
        use_cuda_graphs(ready.model)
    return ready


def at_full_depth(ready: ReadyModel) -> ReadyModel:
    """The model without its early heads, before it is on its engine: who never stops need not compute them."""
    network = ready.model
    if network.final_kind is not None or not network.num_exits:
        return ready.with_policy(Policy.never(network.num_exits))
    whole = EarlyExitModel(network.backbone, (), (), confidence=network.confidence).eval()
    return replace(ready, model=whole, policy=Policy(()))


def numbers_of(ready: ReadyModel) -> str:
    """How a model's products are made: torch rounds to grids and multiplies floats, other engines multiply codes."""
    if ready.compression is None:
        return "none"
    return "simulated" if ready.engine == "torch" else "integer codes"
