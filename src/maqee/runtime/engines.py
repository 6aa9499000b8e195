"""Ways to run a finished model. Every engine gives the same object with the same decisions.

A model runs road by road: from the images to the first exit, from there to the next (`EarlyExitModel.segments`). An
engine replaces these roads and nothing else, so that policies, streams and predictions need not know which one it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from maqee.errors import MaqeeError
from maqee.quant.integer import keep_executing
from maqee.registry import Registry
from maqee.runtime.graphs import forget_graphs
from maqee.runtime.outside import Start, run_outside

if TYPE_CHECKING:
    from maqee.runtime.ready import ReadyModel

Engine = Callable[["ReadyModel", torch.device], "ReadyModel"]
engines: Registry[Engine] = Registry("engine")


def use_engine(model: ReadyModel, name: str, device: torch.device, half_tokens: bool = False) -> ReadyModel:
    """The same model on another engine; its roads are replaced in place. CUDA graphs of the old ones are forgotten."""
    if half_tokens and name != "triton":
        raise MaqeeError(f"half_tokens: tokens in float16 are for the engine triton, not for {name}: leave it out.")
    forget_graphs(model.model)
    return replace(engines[name](replace(model, half_tokens=half_tokens), device), engine=name)


def require_package(package: str, engine: str, extra: str) -> None:
    """Complain if a package that an engine needs is not installed."""
    if find_spec(package) is None:
        raise MaqeeError(f"The engine {engine} needs {package}, which is not installed: pip install 'maqee[{extra}]'.")


@engines.register("torch")
def _run_by_torch(model: ReadyModel, device: torch.device) -> ReadyModel:
    """PyTorch; quantized layers are simulated in floating point."""
    model.model.to(device)
    return model


@engines.register("reference")
def _run_on_codes(model: ReadyModel, device: torch.device) -> ReadyModel:
    """Integer codes and int32 sums in plain PyTorch: slow, and what other engines are compared with."""
    if model.compression is None:
        raise MaqeeError("The engine reference runs integer codes, and this model is not compressed: use torch.")
    if device.type != "cpu":
        raise MaqeeError(f"The engine reference runs on the CPU, not on {device}: give the device cpu.")
    model.model.to(device)
    keep_executing(model.compression.quantized)
    return model


@engines.register("triton")
def _run_by_kernels(model: ReadyModel, device: torch.device) -> ReadyModel:
    """Integer codes on a GPU, by kernels written in Triton."""
    if model.compression is None:
        raise MaqeeError("The engine triton runs integer codes, and this model is not compressed: use torch.")
    require_package("triton", "triton", "triton")
    from maqee.runtime.kernels.swapping import check_device, use_kernels  # not above: few have it

    check_device(device)
    model.model.to(device)
    use_kernels(model.model, model.half_tokens)
    return model


@engines.register("onnxruntime")
def _run_by_onnxruntime(model: ReadyModel, device: torch.device) -> ReadyModel:
    """ONNX Runtime on the CPU: products of bytes with 32-bit sums; see `maqee.runtime.export`."""
    return run_outside(model, device, "onnxruntime", *onnxruntime_starter())


@engines.register("openvino")
def _run_by_openvino(model: ReadyModel, device: torch.device) -> ReadyModel:
    """OpenVINO on the CPU, from the same graphs as ONNX Runtime."""
    return run_outside(model, device, "openvino", *openvino_starter())


def onnxruntime_starter() -> tuple[Start, bool]:
    """What makes graphs ready to run by ONNX Runtime, and whether it puts packed weights together."""
    for package in ("onnx", "onnxruntime"):
        require_package(package, "onnxruntime", "onnx")
    from maqee.runtime.onnx_sessions import start_session

    return start_session, True


def openvino_starter() -> tuple[Start, bool]:
    """The same for OpenVINO."""
    for package in ("onnx", "openvino"):
        require_package(package, "openvino", "openvino")
    from maqee.runtime.openvino_models import start_model

    return start_model, False
