"""What PyTorch's operations are in ONNX, one function each under PyTorch's name: here those on single numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from onnx import helper
from torch import Tensor, fx

from maqee.registry import Registry

if TYPE_CHECKING:
    from maqee.runtime.export.traced import TracedGraph


class Value(NamedTuple):
    """Something that is known only when the graph runs: its name there."""

    name: str


Operation = Callable[..., Any]
operations: Registry[Operation] = Registry("operation")

_TYPES = {torch.float32: np.float32, torch.int64: np.int64, torch.int32: np.int32, torch.bool: np.bool_}
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}
_COMPARISONS = {"eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual"}
_UNARY = {"relu": "Relu", "sigmoid": "Sigmoid", "bitwise_not": "Not"}


def typed(c: TracedGraph, value: Any, argument: Any, dtype: torch.dtype) -> str:
    """An operand in a type; ONNX mixes none."""
    if isinstance(value, Value):
        found = argument.meta["val"].dtype
        return value.name if found == dtype else c.graph.node("Cast", value.name, to=onnx_type(dtype))
    if isinstance(value, Tensor):
        return c.name(value.to(dtype))
    return c.graph.constant(_TYPES[dtype](value))


def onnx_type(dtype: torch.dtype) -> int:
    """ONNX's number for a type."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(_TYPES[dtype])))


def result_type(node: fx.Node) -> torch.dtype:
    """The type of a node's result."""
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def _both(c: TracedGraph, node: fx.Node, op: str, one: Any, other: Any, dtype: torch.dtype) -> Value:
    operands = (typed(c, one, node.args[0], dtype), typed(c, other, node.args[1], dtype))
    return Value(c.graph.node(op, *operands))


def _binary(op: str) -> Operation:
    return lambda c, node, one, other, **_: _both(c, node, op, one, other, result_type(node))


def _comparison(op: str) -> Operation:
    def write(c: TracedGraph, node: fx.Node, one: Any, other: Any) -> Value:
        seen: list[Any] = [found.meta["val"] if isinstance(found, fx.Node) else found for found in node.args[:2]]
        return _both(c, node, op, one, other, torch.result_type(*seen))

    return write


def _unary(op: str) -> Operation:
    return lambda c, node, x: Value(c.graph.node(op, c.name(x)))


for _name, _op in _BINARY.items():
    operations.register(_name)(_binary(_op))
for _name, _op in _COMPARISONS.items():
    operations.register(_name)(_comparison(_op))
for _name, _op in _UNARY.items():
    operations.register(_name)(_unary(_op))


@operations.register("ne")
def _ne(c: TracedGraph, node: fx.Node, one: Any, other: Any) -> Value:
    return Value(c.graph.node("Not", operations["eq"](c, node, one, other).name))


@operations.register("rsub")
def _rsub(c: TracedGraph, node: fx.Node, one: Any, other: Any) -> Value:
    return Value(c.graph.node("Sub", typed(c, other, None, result_type(node)), c.name(one)))


@operations.register("gelu")
def _gelu(c: TracedGraph, node: fx.Node, x: Value, approximate: str = "none") -> Value:
    return Value(c.graph.node("Gelu", x.name, approximate=approximate))


@operations.register("elu")
def _elu(c: TracedGraph, node: fx.Node, x: Value, alpha: float = 1.0) -> Value:
    return Value(c.graph.node("Elu", x.name, alpha=float(alpha)))


@operations.register("special_entr")
def _entr(c: TracedGraph, node: fx.Node, x: Value) -> Value:
    """-x ln x, which is 0 at 0: there the logarithm is taken of the smallest number instead."""
    smallest = c.graph.constant(np.float32(np.finfo(np.float32).tiny))
    logarithm = c.graph.node("Log", c.graph.node("Max", x.name, smallest))
    return Value(c.graph.node("Neg", c.graph.node("Mul", x.name, logarithm)))


@operations.register("lerp")
def _lerp(c: TracedGraph, node: fx.Node, start: Value, end: Value, weight: float) -> Value:
    way = c.graph.node("Sub", end.name, start.name)
    return Value(c.graph.node("Add", start.name, c.graph.node("Mul", way, *c.graph.floats(weight))))


@operations.register("clamp")
def _clamp(c: TracedGraph, node: fx.Node, x: Value, low: Any = None, high: Any = None, **ends: Any) -> Value:
    dtype = result_type(node)
    for op, end in (("Max", ends.get("min", low)), ("Min", ends.get("max", high))):
        x = x if end is None else Value(c.graph.node(op, x.name, typed(c, end, None, dtype)))
    return x


@operations.register("where")
def _where(c: TracedGraph, node: fx.Node, condition: Any, one: Any, other: Any) -> Value:
    dtype = result_type(node)
    chosen = [typed(c, value, node.args[place], dtype) for place, value in ((1, one), (2, other))]
    return Value(c.graph.node("Where", c.name(condition), *chosen))


@operations.register("to")
def _to(c: TracedGraph, node: fx.Node, x: Value, *_: Any, **__: Any) -> Value:
    return Value(typed(c, x, node.args[0], result_type(node)))


@operations.register("dropout")
def _dropout(c: TracedGraph, node: fx.Node, x: Any, *_: Any) -> Any:
    return x


@operations.register("_assert_tensor_metadata")
def _nothing(c: TracedGraph, node: fx.Node, *_: Any, **__: Any) -> None:
    return None


@operations.register("ones_like")
def _ones_like(c: TracedGraph, node: fx.Node, x: Value, **_: Any) -> Value:
    return _filled(c, x, 1)


@operations.register("zeros_like")
def _zeros_like(c: TracedGraph, node: fx.Node, x: Value, **_: Any) -> Value:
    return _filled(c, x, 0)


def _filled(c: TracedGraph, x: Value, number: float) -> Value:
    value = helper.make_tensor("value", helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)), [1], [number])
    return Value(c.graph.node("ConstantOfShape", c.graph.node("Shape", x.name), value=value))


def axes_of(c: TracedGraph, axes: int | Sequence[int]) -> str:
    """One axis or several as ONNX wants them."""
    return c.graph.integers(*([axes] if isinstance(axes, int) else axes))
