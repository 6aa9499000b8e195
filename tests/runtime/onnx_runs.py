"""Small graphs, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnxruntime
from torch import Tensor

from maqee.runtime.export.graph_writer import FLOAT, GraphWriter


def run_graph(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, dict(inputs))
    return found


def run_written(write: Callable[[GraphWriter, str], str], x: Tensor, packed: bool = True) -> np.ndarray:
    """What a piece of a graph makes of x, whatever its type, as float32."""
    graph = GraphWriter(packed)
    name = graph.add_input("x", ["batch", *x.shape[1:]])
    y = graph.node("Cast", write(graph, name), to=FLOAT)
    graph.add_output("y", y, ["batch", *x.shape[1:]])
    return run_graph(graph.model("test"), {"x": x.numpy()})[0]
