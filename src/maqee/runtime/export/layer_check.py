"""Each quantized layer on its own, on another engine and in the simulation, from the same input.

Whole runs drift apart from the first number that is rounded the other way; layers from equal inputs must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from maqee.quant.quantized_model import QuantizedModel
from maqee.runtime.export.graph_writer import GraphWriter
from maqee.runtime.export.layer_graphs import write_layer, write_mix, write_scores

RunGraph = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], list[np.ndarray]]


@torch.no_grad()
def check_layers(quantized: QuantizedModel, images: Tensor, run: RunGraph, packed: bool = True) -> dict[str, float]:
    """Largest difference of every layer and attention product, relative to the largest output.

    Args:
        quantized: a model on the CPU.
        images: (n, channels, height, width), normalised.
        run: a graph on its inputs, on the engine in question.
        packed: whether weights are stored with no more bits than they need; see `GraphWriter`.
    """
    found: dict[str, float] = {}

    def note(name: str, wanted: Tensor, write: Callable[..., str], **inputs: Tensor) -> None:
        graph = GraphWriter(packed)
        names = [graph.add_input(key, ["batch", *value.shape[1:]]) for key, value in inputs.items()]
        graph.add_output("y", write(graph, *names), ["batch", *wanted.shape[1:]])
        (got,) = run(graph.model(name), {key: value.numpy() for key, value in inputs.items()})
        scale = float(wanted.abs().max().clamp(min=1e-30))
        found[name] = max(found.get(name, 0.0), float((torch.from_numpy(got) - wanted).abs().max()) / scale)

    def on_layer(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        assert isinstance(layer, QuantLayer)
        shape, grid = [-1, *inputs[0].shape[1:]], inputs[1] if len(inputs) > 1 else ()
        note(layer.name, output, lambda graph, x: write_layer(graph, layer, x, shape, grid), x=inputs[0])

    def on_attend(attend: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        assert isinstance(attend, QuantAttend)
        q, k, v, *rest = inputs
        width = q.shape[-1]
        scores, p = attend.scores(q, k), attend.probabilities(q, k, *rest)
        note(f"{attend.name} q x k", scores, lambda graph, q, k: write_scores(graph, attend, q, k, width), q=q, k=k)
        note(f"{attend.name} p x v", output, lambda graph, p, v: write_mix(graph, attend, p, v), p=p, v=v)

    hooks = [layer.register_forward_hook(on_layer) for layer in quantized.layers.values()]
    hooks += [attend.register_forward_hook(on_attend) for attend in quantized.attends.values()]
    try:
        quantized.run_everything(images)
    finally:
        for hook in hooks:
            hook.remove()
    return found
