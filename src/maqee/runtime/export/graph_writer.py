"""ONNX graphs, node by node: names by counting, constants once each, so that equal models give equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

OPSET, IR_VERSION = 21, 10  # the first with four-bit integers in Cast and DequantizeLinear
PRODUCER = "maqee"
FLOAT, UINT8, INT8, INT32 = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.UINT8,
    onnx.TensorProto.INT8,
    onnx.TensorProto.INT32,
)


class GraphWriter:
    """Collects nodes and constants, and puts them together at the end.

    Args:
        packed: store weights with no more bits than their codes have, and write what ONNX Runtime runs best; else in
            bytes, and what OpenVINO runs best, which does not put packed weights together rightly.
    """

    def __init__(self, packed: bool = True) -> None:
        self.packed = packed
        self.nodes: list[onnx.NodeProto] = []
        self.makers: dict[str, onnx.NodeProto] = {}
        self.constants: dict[tuple[str, tuple[int, ...], bytes], onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, whose name is given back."""
        return self.node_with(1, op, *inputs, **attributes)[0]

    def node_with(self, count: int, op: str, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        outputs = [f"{op.lower()}_{len(self.nodes)}" + (f"_{index}" if index else "") for index in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, **attributes))
        self.makers |= dict.fromkeys(outputs, self.nodes[-1])
        return outputs

    def made_by(self, value: str, *ops: str) -> bool:
        """Whether a value is what such a node puts out."""
        return value in self.makers and self.makers[value].op_type in ops

    def moved_from(self, value: str) -> tuple[str, list[onnx.NodeProto]]:
        """Where the numbers of a value were computed, and the nodes that have moved them about since, in order."""
        moves: list[onnx.NodeProto] = []
        while self.made_by(value, "Reshape", "Transpose"):
            moves.insert(0, self.makers[value])
            value = moves[0].input[0]
        return value, moves

    def move(self, value: str, moves: Sequence[onnx.NodeProto]) -> str:
        """Move other numbers in the same way."""
        for node in moves:
            attributes = {found.name: helper.get_attribute_value(found) for found in node.attribute}
            value = self.node(node.op_type, value, *node.input[1:], **attributes)
        return value

    def constant(self, values: ArrayLike) -> str:
        """Numbers that are part of the file; equal ones are stored once. The type is the array's."""
        array = np.ascontiguousarray(values)
        array = array.reshape(np.shape(values))  # numpy gives a single number a dimension
        return self._keep(numpy_helper.from_array(array))

    def four_bits(self, codes: np.ndarray) -> str:
        """Codes from 0 to 15, two to a byte."""
        flat = codes.astype(np.uint8).reshape(-1)
        padded = np.append(flat, np.zeros(flat.size % 2, np.uint8))
        data = (padded[0::2] | (padded[1::2] << 4)).tobytes()
        return self._keep(onnx.TensorProto(dims=codes.shape, data_type=onnx.TensorProto.UINT4, raw_data=data))

    def floats(self, *numbers: float) -> list[str]:
        """Single numbers in float32."""
        return [self.constant(np.float32(number)) for number in numbers]

    def integers(self, *numbers: int) -> str:
        """A row of int64, as shapes and axes are written."""
        return self.constant(np.asarray(numbers, dtype=np.int64))

    def add_input(self, name: str, shape: Sequence[int | str]) -> str:
        """A float32 input; a word stands for a size that may differ from run to run."""
        self.inputs.append(helper.make_tensor_value_info(name, FLOAT, list(shape)))
        return name

    def add_output(self, name: str, value: str, shape: Sequence[int | str]) -> None:
        """Give a value out under a name of its own."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, FLOAT, list(shape)))

    def model(self, name: str) -> onnx.ModelProto:
        """The whole file, without what no output needs."""
        nodes: list[onnx.NodeProto] = []
        needed = {found.name for found in self.outputs}
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.insert(0, node)
                needed |= set(node.input)
        constants = [tensor for tensor in self.constants.values() if tensor.name in needed]
        graph = helper.make_graph(nodes, name, self.inputs, self.outputs, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name=PRODUCER)

    def _keep(self, tensor: onnx.TensorProto) -> str:
        key = (str(tensor.data_type), tuple(tensor.dims), tensor.raw_data)
        if key not in self.constants:
            tensor.name = f"constant_{len(self.constants)}"
            self.constants[key] = tensor
        return str(self.constants[key].name)
