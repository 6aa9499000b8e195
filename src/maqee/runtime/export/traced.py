"""From a segment in PyTorch to its graph in ONNX, operation by operation."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch
from torch import Tensor, fx, nn

from maqee.errors import MaqeeError
from maqee.exits.segment import Kept, Segment, SegmentOutput
from maqee.models.exporting import exporting
from maqee.runtime.export.graph_writer import GraphWriter
from maqee.runtime.export.marks import Quantized
from maqee.runtime.export.operations import Value, operations

EXAMPLE = 2  # images that a segment is traced with; 1 would pass for a size that never changes


class _Road(nn.Module):
    """A segment as a module with tensors in and out."""

    def __init__(self, segment: Segment, reads: Sequence[int]) -> None:
        super().__init__()
        self.backbone, self.head = segment.backbone, segment.head
        self.segment, self.reads = segment, reads

    def forward(self, x: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        found = self.segment(x, dict(zip(self.reads, kept, strict=True)))
        return (found.x, found.output, found.confidence, *found.kept.values())


def write_segment(
    segment: Segment,
    x: Tensor,
    kept: Kept,
    found: SegmentOutput,
    coded: Mapping[str, Quantized],
    name: str,
    packed: bool = True,
) -> onnx.ModelProto:
    """A segment's file.

    Args:
        segment: with marks in the place of its quantized layers.
        x: an example of its input.
        kept: examples of the tokens that its head reads from earlier segments.
        found: what the segment makes of these, for the shapes and names of its outputs.
        coded: quantized layers by the names on their marks.
        name: of the graph.
        packed: whether weights are stored with no more bits than they need; see `GraphWriter`.
    """
    batch = torch.export.Dim("batch")
    each: Any = {0: batch}
    shapes = (each, tuple(each for _ in kept)) if kept else (each,)
    with torch.no_grad(), exporting():
        program = torch.export.export(
            _Road(segment, list(kept)).eval(), (x, *kept.values()), dynamic_shapes=shapes, strict=False
        )
    graph = GraphWriter(packed)
    inputs = [graph.add_input(*_described("images" if segment.first == 1 else "tokens", x))]
    inputs += [graph.add_input(*_described(f"block_{block}", tokens)) for block, tokens in kept.items()]
    outputs = TracedGraph(graph, coded).write(program, inputs)
    named = {"tokens_out": found.x, "output": found.output, "confidence": found.confidence}
    named |= {f"block_{block}_out": tokens for block, tokens in found.kept.items()}
    for (title, example), value in zip(named.items(), outputs, strict=True):
        graph.add_output(title, value, _described(title, example)[1])
    return graph.model(name)


def _described(name: str, example: Tensor) -> tuple[str, list[int | str]]:
    return name, ["batch", *example.shape[1:]]


class TracedGraph:
    """Walks through a traced program and writes each of its operations.

    What depends on no input is computed here, and its result is a constant of the file.

    Attributes:
        graph: what is written.
        coded: quantized layers by name.
        images: name of the first input, which tells how many images there are.
    """

    def __init__(self, graph: GraphWriter, coded: Mapping[str, Quantized]) -> None:
        self.graph, self.coded, self.images = graph, coded, ""
        self.known: dict[fx.Node, Any] = {}

    def write(self, program: torch.export.ExportedProgram, inputs: Sequence[str]) -> list[str]:
        """Write everything; gives the names of the outputs."""
        self.images, names = inputs[0], iter(inputs)
        signature = program.graph_signature
        stored = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        lifted = signature.inputs_to_lifted_tensor_constants
        for node in program.graph.nodes:
            if node.op == "placeholder":
                if node.name in stored:
                    key = stored[node.name]
                    self.known[node] = program.state_dict[key] if key in program.state_dict else program.constants[key]
                elif node.name in lifted:
                    self.known[node] = program.constants[lifted[node.name]]
                else:
                    self.known[node] = Value(next(names))
            elif node.op == "call_function":
                self.known[node] = self._operation(node)
        result = next(node for node in program.graph.nodes if node.op == "output")
        return [self.name(self.known[node]) for node in result.args[0]]

    def name(self, value: Any) -> str:
        """A value's name in the graph; numbers and tensors become constants."""
        if isinstance(value, Value):
            return value.name
        if isinstance(value, Tensor):
            return self.graph.constant(value.detach().cpu().numpy())
        return self.graph.floats(float(value))[0]

    def shape(self, node: fx.Node) -> list[int]:
        """The shape of a node's result; -1 stands for what depends on the number of images."""
        return [size if isinstance(size, int) else -1 for size in node.meta["val"].shape]

    def images_times(self, size: torch.SymInt) -> str:
        """A size that is a multiple of the number of images, as a row of one."""
        count = self.graph.node("Shape", self.images, start=0, end=1)
        multiple = int(size.node.hint) // EXAMPLE
        return count if multiple == 1 else self.graph.node("Mul", count, self.graph.integers(multiple))

    def _operation(self, node: fx.Node) -> Any:
        found: Any = fx.map_arg((node.args, node.kwargs), lambda used: self.known[used])
        args, kwargs = found
        if node.target is operator.getitem:
            return args[0][args[1]]
        if not _depends(args, kwargs) and not _sized_by_images(node):
            with torch.no_grad():
                return node.target(*args, **kwargs)  # type: ignore[operator]
        name = str(node.target).removeprefix("aten.").removeprefix("maqee.").partition(".")[0]
        if name not in operations:
            raise MaqeeError(f"{name}, which the model computes with, cannot be exported: use the engine torch.")
        return operations[name](self, node, *args, **kwargs)


def _depends(*values: Any) -> bool:
    """Whether there is anything among the arguments that is known only when the graph runs."""
    found = False

    def look(value: Any) -> None:
        nonlocal found
        if isinstance(value, Mapping):
            value = list(value.values())
        if isinstance(value, list | tuple) and not isinstance(value, Value):
            for one in value:
                look(one)
        found = found or isinstance(value, Value)

    look(values)
    return found


def _sized_by_images(node: fx.Node) -> bool:
    shape = getattr(node.meta.get("val"), "shape", ())
    return any(not isinstance(size, int) for size in shape)
