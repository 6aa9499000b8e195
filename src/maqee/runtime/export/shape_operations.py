"""Operations that move numbers and compute none: every one that only renames sizes is a Reshape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, fx

from maqee.errors import MaqeeError
from maqee.runtime.export.operations import Value, operations

if TYPE_CHECKING:
    from maqee.runtime.export.traced import TracedGraph

_RENAMED = ("view", "view_as", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze")
_END = 2**31 - 1


def _reshape(c: TracedGraph, node: fx.Node, x: Value, *_: Any, **__: Any) -> Value:
    sizes = c.shape(node)
    if sizes.count(-1) > 1:
        raise MaqeeError(f"{node.name} has two sizes that depend on the batch, which cannot be exported: use torch.")
    return Value(c.graph.node("Reshape", x.name, c.graph.integers(*sizes)))


for _name in _RENAMED:
    operations.register(_name)(_reshape)


@operations.register("sym_size")
def _sym_size(c: TracedGraph, node: fx.Node, *_: Any) -> Any:
    """Shapes of results say what comes of it."""
    return node.meta["val"]


@operations.register("permute")
def _permute(c: TracedGraph, node: fx.Node, x: Value, order: Sequence[int]) -> Value:
    return Value(c.graph.node("Transpose", x.name, perm=[axis % len(order) for axis in order]))


@operations.register("transpose")
def _transpose(c: TracedGraph, node: fx.Node, x: Value, one: int, other: int) -> Value:
    order = list(range(len(c.shape(node))))
    order[one], order[other] = order[other], order[one]
    if order == [0, 2, 1] and (tokens := _behind_picture(c, node.args[0], x.name)) is not None:
        return Value(c.graph.node("Reshape", tokens, c.graph.integers(*c.shape(node))))
    return Value(c.graph.node("Transpose", x.name, perm=order))


def _behind_picture(c: TracedGraph, flat: Any, name: str) -> str | None:
    """What a picture with flat rows was made from, (batch, rows, columns, dim); None where it was not.

    Patches are projected as tokens, given out as the picture that a convolution makes, and become tokens again.
    """
    if not c.graph.made_by(name, "Reshape") or not c.graph.made_by(c.graph.makers[name].input[0], "Transpose"):
        return None
    maker, picture = c.graph.makers[c.graph.makers[name].input[0]], c.shape(flat.args[0])
    turned = list(maker.attribute[0].ints) == [0, 3, 1, 2] and len(picture) == 4
    return str(maker.input[0]) if turned and c.shape(flat)[1] == picture[1] else None


@operations.register("slice")
def _slice(
    c: TracedGraph, node: fx.Node, x: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if c.shape(node) == c.shape(source):  # all of it
        return x
    first, last = start or 0, _END if end is None else min(end, _END)
    edges = (c.graph.integers(number) for number in (first, last, axis, step))
    return Value(c.graph.node("Slice", x.name, *edges))


@operations.register("select")
def _select(c: TracedGraph, node: fx.Node, x: Value, axis: int, index: int) -> Value:
    return Value(c.graph.node("Gather", x.name, c.graph.constant(np.int64(index)), axis=axis))


@operations.register("unbind")
def _unbind(c: TracedGraph, node: fx.Node, x: Value, axis: int = 0) -> list[Value]:
    return [_select(c, node, x, axis, index) for index in range(len(node.meta["val"]))]


@operations.register("cat")
def _cat(c: TracedGraph, node: fx.Node, parts: Sequence[Any], axis: int = 0) -> Value:
    return Value(c.graph.node("Concat", *(c.name(part) for part in parts), axis=axis))


@operations.register("expand")
def _expand(c: TracedGraph, node: fx.Node, x: Any, *_: Any) -> Value:
    return Value(c.graph.node("Expand", c.name(x), _sizes(c, node.meta["val"].shape)))


operations.register("expand_as")(_expand)


@operations.register("repeat")
def _repeat(c: TracedGraph, node: fx.Node, x: Any, times: Sequence[Any]) -> Value:
    return Value(c.graph.node("Tile", c.name(x), _sizes(c, times)))


def _sizes(c: TracedGraph, sizes: Sequence[Any]) -> str:
    """Sizes of which some depend on the number of images."""
    parts = [c.graph.integers(size) if isinstance(size, int) else c.images_times(size) for size in sizes]
    return c.graph.node("Concat", *parts, axis=0)


@operations.register("pad")
def _pad(c: TracedGraph, node: fx.Node, x: Value, amounts: Sequence[int], mode: str = "constant", *_: Any) -> Value:
    """PyTorch tells the last axis first, ONNX all beginnings and then all ends."""
    if not any(amounts):
        return x
    begins, ends = list(amounts[0::2])[::-1], list(amounts[1::2])[::-1]
    others = [0] * (len(c.shape(node)) - len(begins))
    return Value(c.graph.node("Pad", x.name, c.graph.integers(*others, *begins, *others, *ends), mode=mode))


@operations.register("roll")
def _roll(c: TracedGraph, node: fx.Node, x: Value, shifts: Sequence[int], axes: Sequence[int]) -> Value:
    for shift, axis in zip(shifts, axes, strict=True):
        at = -shift % c.shape(node)[axis]
        halves = [
            c.graph.node("Slice", x.name, *(c.graph.integers(number) for number in (start, end, axis)))
            for start, end in ((at, _END), (0, at))
        ]
        x = Value(c.graph.node("Concat", *halves, axis=axis))
    return x


@operations.register("index")
def _index(c: TracedGraph, node: fx.Node, x: Value, indices: Sequence[Any]) -> Value:
    """One axis by a list of places."""
    chosen = [(axis, places) for axis, places in enumerate(indices) if places is not None]
    if len(chosen) != 1 or not isinstance(chosen[0][1], Tensor):
        raise MaqeeError(f"{node.name} picks by more than one list, which cannot be exported: use torch.")
    axis, places = chosen[0]
    return Value(c.graph.node("Gather", x.name, c.name(places), axis=axis))
