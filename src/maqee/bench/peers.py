"""What others make of the same network in int8, at full depth: for comparison, and nowhere used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import Tensor

from maqee.runtime.onnx_sessions import start_session
from maqee.runtime.openvino_models import compile_graph, read_graph
from maqee.runtime.outside import Run

Peer = Callable[[Tensor], Any]


def peer_runs(graph: onnx.ModelProto, images: Tensor, place: Path) -> dict[str, Peer]:
    """Everyone's int8 of a float graph; NNCF's where it is installed.

    Args:
        graph: the network in float32.
        images: to fit ranges on.
        place: folder for files.
    """
    source = place / "float.onnx"
    onnx.save(graph, source)
    found = {
        "ONNX Runtime dynamic int8": _dynamic(source, place),
        "ONNX Runtime static int8": _static(source, images, place),
    }
    if find_spec("nncf") is not None:
        found["OpenVINO int8 by NNCF"] = _nncf(graph, images)
    return {name: partial(_call, run) for name, run in found.items()}


def _call(run: Run, images: Tensor) -> Any:
    return run([images.numpy()])


def _dynamic(source: Path, place: Path) -> Run:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = place / "dynamic.onnx"
    _quietly(lambda: quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True))
    return start_session(onnx.load(target))


def _static(source: Path, images: Tensor, place: Path) -> Run:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: Iterator[Tensor] = iter(images.split(1))

        def get_next(self) -> dict[str, np.ndarray] | None:
            batch = next(self.left, None)
            return None if batch is None else {"images": batch.numpy()}

    target = place / "static.onnx"
    _quietly(
        lambda: quantize_static(
            source,
            target,
            Reader(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=["MatMul", "Gemm", "Conv"],
        )
    )
    return start_session(onnx.load(target))


def _nncf(graph: onnx.ModelProto, images: Tensor) -> Run:
    import nncf

    data = nncf.Dataset([batch.numpy() for batch in images.split(1)])
    return compile_graph(nncf.quantize(read_graph(graph), data, model_type=nncf.ModelType.TRANSFORMER))


def _quietly(work: Callable[[], None]) -> None:
    """Without the advice that they log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        work()
    finally:
        logging.disable(before)
