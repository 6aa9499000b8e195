"""Graphs run by OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino
import torch

from maqee.runtime.outside import Run

if TYPE_CHECKING:
    import onnx

# Unasked, it would multiply in bfloat16 where a processor can, and round inputs of float products to bytes of its own.
_SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    "PERFORMANCE_HINT": "LATENCY",
}


def start_model(model: onnx.ModelProto) -> Run:
    """Make a graph ready to run, on as many threads as PyTorch uses."""
    return compile_graph(read_graph(model))


def compile_graph(graph: openvino.Model) -> Run:
    """The same for a graph in OpenVINO's own form."""
    settings: dict[str, Any] = {**_SETTINGS, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = openvino.Core().compile_model(graph, "CPU", settings)
    request = compiled.create_infer_request()

    def run(inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        arrays = [np.ascontiguousarray(array) for array in inputs]  # alive for as long as it reads them
        for place, array in enumerate(arrays):  # in half the time that it takes to hand them to `infer`
            request.set_input_tensor(place, openvino.Tensor(array, shared_memory=True))
        request.infer()
        # Copies: its own memory is used again.
        return [np.array(request.get_output_tensor(place).data) for place in range(len(compiled.outputs))]

    return run


def read_graph(model: onnx.ModelProto) -> openvino.Model:
    """OpenVINO's form of an ONNX graph."""
    return openvino.Core().read_model(model.SerializeToString())
