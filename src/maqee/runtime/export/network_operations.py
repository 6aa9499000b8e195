"""Operations that sum, compare or normalise over an axis, and the layers of a network that are not quantized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer
from maqee.runtime.export.layer_graphs import write_attend, write_layer
from maqee.runtime.export.operations import Value, axes_of, operations, result_type, typed
from maqee.runtime.export.split_layers import split_layer

if TYPE_CHECKING:
    from maqee.runtime.export.traced import TracedGraph

Axes = int | Sequence[int]


@operations.register("layer")
def _layer(c: TracedGraph, node: fx.Node, x: Value, name: str, grid: Sequence[int], *_: Any) -> Any:
    """A quantized layer, which a mark stands for.

    One whose result is cut into pieces at once (queries, keys, values) is a layer a piece for OpenVINO, which then
    rounds each as it comes out of its product. ONNX Runtime takes longer for three products than for one.
    """
    layer, source = c.coded[name], node.args[0]
    assert isinstance(layer, QuantLayer)
    assert isinstance(source, fx.Node)
    pieces = [layer] if c.graph.packed else split_layer(layer, _pieces(node))
    written = [Value(write_layer(c.graph, piece, x.name, c.shape(source), grid)) for piece in pieces]
    return written if len(pieces) > 1 else written[0]


def _pieces(node: fx.Node) -> int:
    """Into how many pieces along its last axis a result is cut, if nothing else is done with it; else 1."""
    user, *others = node.users
    if others or user.target is not torch.ops.aten.chunk.default or user.args[2] != -1:
        return 1
    count = user.args[1]
    assert isinstance(count, int)
    return count


@operations.register("chunk")
def _chunk(c: TracedGraph, node: fx.Node, x: Value | list[Value], count: int, axis: int = 0) -> list[Value]:
    """Equal pieces, unless they were made as such."""
    if isinstance(x, list):
        return x
    return [Value(name) for name in c.graph.node_with(count, "Split", x.name, axis=axis, num_outputs=count)]


@operations.register("attend")
def _attend(c: TracedGraph, node: fx.Node, q: Value, k: Value, v: Value, bias: Any, name: str) -> Value:
    """A quantized attention product, which a mark stands for."""
    attend = c.coded[name]
    assert isinstance(attend, QuantAttend)
    added = None if bias is None else c.name(bias)
    return Value(write_attend(c.graph, attend, q.name, k.name, v.name, added, c.shape(node)[-1]))


@operations.register("scaled_dot_product_attention")
def _attention(c: TracedGraph, node: fx.Node, q: Value, k: Value, v: Value, *_: Any, **options: Any) -> Value:
    bias = options.get("attn_mask", _[0] if _ else None)
    width = c.shape(node)[-1]
    scaled = c.graph.node("Mul", q.name, *c.graph.floats(1 / math.sqrt(width)))
    scores = c.graph.node("MatMul", scaled, c.graph.node("Transpose", k.name, perm=[0, 1, 3, 2]))
    scores = scores if bias is None else c.graph.node("Add", scores, c.name(bias))
    return Value(c.graph.node("MatMul", c.graph.node("Softmax", scores, axis=-1), v.name))


@operations.register("linear")
def _linear(c: TracedGraph, node: fx.Node, x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
    y = c.graph.node("MatMul", x.name, c.name(weight.t()))
    return Value(y if bias is None else c.graph.node("Add", y, c.name(bias)))


@operations.register("conv2d")
def _conv2d(
    c: TracedGraph,
    node: fx.Node,
    x: Value,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Value:
    constants = [c.name(value) for value in (weight, bias) if value is not None]
    sizes = {"strides": list(stride), "pads": [*padding, *padding], "dilations": list(dilation)}
    return Value(c.graph.node("Conv", x.name, *constants, group=groups, **sizes))


@operations.register("layer_norm")
def _layer_norm(
    c: TracedGraph, node: fx.Node, x: Value, shape: Sequence[int], weight: Tensor, bias: Tensor, eps: float, *_: Any
) -> Value:
    numbers = (c.name(weight), c.name(bias))
    return Value(c.graph.node("LayerNormalization", x.name, *numbers, axis=-len(shape), epsilon=eps))


@operations.register("softmax")
def _softmax(c: TracedGraph, node: fx.Node, x: Value, axis: int, *_: Any) -> Value:
    return Value(c.graph.node("Softmax", x.name, axis=axis))


def _reduce(c: TracedGraph, node: fx.Node, op: str, x: Value, axes: Axes, keep: bool) -> Value:
    operand = typed(c, x, node.args[0], result_type(node))
    return Value(c.graph.node(op, operand, axes_of(c, axes), keepdims=int(keep)))


@operations.register("mean")
def _mean(c: TracedGraph, node: fx.Node, x: Value, axes: Axes, keep: bool = False, **_: Any) -> Value:
    return _reduce(c, node, "ReduceMean", x, axes, keep)


@operations.register("sum")
def _sum(c: TracedGraph, node: fx.Node, x: Value, axes: Axes, keep: bool = False, **_: Any) -> Value:
    return _reduce(c, node, "ReduceSum", x, axes, keep)


@operations.register("amax")
def _amax(c: TracedGraph, node: fx.Node, x: Value, axes: Axes, keep: bool = False) -> Value:
    return _reduce(c, node, "ReduceMax", x, axes, keep)


@operations.register("any")
def _any(c: TracedGraph, node: fx.Node, x: Value, axis: int, keep: bool = False) -> Value:
    whole = typed(c, x, node.args[0], torch.int32)
    most = c.graph.node("ReduceMax", whole, axes_of(c, axis), keepdims=int(keep))
    return Value(c.graph.node("Greater", most, typed(c, 0, None, torch.int32)))


@operations.register("argmax")
def _argmax(c: TracedGraph, node: fx.Node, x: Value, axis: int, keep: bool = False) -> Value:
    return Value(c.graph.node("ArgMax", x.name, axis=axis, keepdims=int(keep)))


@operations.register("max")
def _max(c: TracedGraph, node: fx.Node, x: Value, axis: int, keep: bool = False) -> list[Value]:
    """The largest along an axis, and where it is."""
    largest = c.graph.node("ReduceMax", x.name, axes_of(c, axis), keepdims=int(keep))
    return [Value(largest), _argmax(c, node, x, axis, keep)]


@operations.register("topk")
def _topk(c: TracedGraph, node: fx.Node, x: Value, count: int, axis: int = -1, largest: bool = True) -> list[Value]:
    names = c.graph.node_with(2, "TopK", x.name, c.graph.integers(count), axis=axis, largest=int(largest))
    return [Value(name) for name in names]


@operations.register("sort")
def _sort(c: TracedGraph, node: fx.Node, x: Value, axis: int = -1, descending: bool = False) -> list[Value]:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return _topk(c, node, x, c.shape(source)[axis], axis, descending)


@operations.register("max_pool2d")
def _max_pool(c: TracedGraph, node: fx.Node, x: Value, *sizes: Any) -> Value:
    return Value(c.graph.node("MaxPool", x.name, **_pooling(*sizes)))


@operations.register("avg_pool2d")
def _avg_pool(
    c: TracedGraph,
    node: fx.Node,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil: bool = False,
) -> Value:
    return Value(c.graph.node("AveragePool", x.name, **_pooling(kernel, stride, padding, (1, 1), ceil)))


def _pooling(
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil: bool = False,
) -> dict[str, Any]:
    sizes = {"kernel_shape": list(kernel), "strides": list(stride or kernel), "pads": [*padding, *padding]}
    return {**sizes, "dilations": list(dilation), "ceil_mode": int(ceil)}
