"""What others make of the same network in int8, at full depth: for comparison, and nowhere used."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
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
NNCF = "OpenVINO int8 by NNCF"


def peer_files(graph: onnx.ModelProto, images: Tensor, place: Path) -> dict[str, Path]:
    """Everyone's int8 of a float graph as a file each, so that other processes can run it, too.

    Args:
        graph: the network in float32.
        images: to fit ranges on, the same for all.
        place: folder for files.
    """
    source = place / "float.onnx"
    onnx.save(graph, source)
    with _quietly():
        found = {
            "ONNX Runtime dynamic int8": _dynamic(source, place / "dynamic.onnx"),
            "ONNX Runtime static int8": _static(source, images, place / "static.onnx"),
        }
        if NNCF not in missing_peers():
            found[NNCF] = _nncf(graph, images, place / "nncf.xml")
    return found


def missing_peers() -> dict[str, str]:
    """Peers that cannot be compared with, and why: NNCF is installed by few."""
    return {} if find_spec("nncf") is not None else {NNCF: "not installed: pip install 'maqee[nncf]'"}


def start_peer(file: Path) -> Peer:
    """Make one of the files ready to run, on as many threads as PyTorch uses."""
    if file.suffix == ".onnx":
        run = start_session(onnx.load(file))
    else:
        import openvino

        run = compile_graph(openvino.Core().read_model(file))
    return lambda images: _call(run, images)


def _call(run: Run, images: Tensor) -> Any:
    return run([images.numpy()])


def _dynamic(source: Path, target: Path) -> Path:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)
    return target


def _static(source: Path, images: Tensor, target: Path) -> Path:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: Iterator[Tensor] = iter(images.split(1))

        def get_next(self) -> dict[str, np.ndarray] | None:
            batch = next(self.left, None)
            return None if batch is None else {"images": batch.numpy()}

    quantize_static(
        source,
        target,
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=["MatMul", "Gemm", "Conv"],
    )
    return target


def _nncf(graph: onnx.ModelProto, images: Tensor, target: Path) -> Path:
    import nncf
    import openvino

    data = nncf.Dataset([batch.numpy() for batch in images.split(1)])
    quantized = nncf.quantize(read_graph(graph), data, model_type=nncf.ModelType.TRANSFORMER)
    openvino.save_model(quantized, target, compress_to_fp16=False)
    return target


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the advice that they log and the progress that they print among our results."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
