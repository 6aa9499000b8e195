"""Quantized layers and attention products as ONNX graphs.

Where both operands are bytes, the product is a MatMul between two DequantizeLinear, which engines make from the bytes
with 32-bit sums. A grid of two regions is two such products, and so are weights of two groups whose steps have no
common one. Convolutions with a kernel larger than their stride multiply whole numbers in floating point, which is
exact, or bytes on OpenVINO; whatever has no bytes multiplies the numbers that the codes stand for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import nn

from maqee.models.layers import TokenDepthwise
from maqee.quant.attend import QuantAttend
from maqee.quant.coded import WeightState
from maqee.quant.common_steps import join_groups
from maqee.quant.grids import Grid, LogSqrt2Grid
from maqee.quant.layer import QuantLayer
from maqee.runtime.export.coded_operands import (
    Columns,
    byte_range,
    byte_ranges,
    pair_fits_signed,
    write_codes,
    write_powers,
    write_rounded,
    write_values,
)
from maqee.runtime.export.graph_writer import GraphWriter
from maqee.runtime.export.stored_weights import (
    JoinedWeights,
    StoredWeights,
    fits_signed,
    fits_unsigned,
    write_float_weights,
    write_joined_weights,
    write_weights,
)


def write_layer(graph: GraphWriter, layer: QuantLayer, x: str, shape: Sequence[int], grid: Sequence[int]) -> str:
    """A quantized layer.

    Args:
        graph: to write to.
        layer: what to write.
        x: its input.
        shape: of the input; -1 stands for the batch.
        grid: rows and columns of the tokens, where the layer is a convolution over tokens.
    """
    inner = layer.inner
    if isinstance(inner, nn.Linear):
        return _linear(graph, layer, x) if len(shape) > 2 else _single_rows(graph, layer, inner, x)
    assert isinstance(inner, nn.Conv2d)
    if isinstance(inner, TokenDepthwise):
        y = _convolution(graph, layer, inner, _as_picture(graph, x, grid, shape[2]))
        return graph.node("Reshape", graph.node("Transpose", y, perm=[0, 2, 3, 1]), graph.integers(-1, *shape[1:]))
    if is_patches(inner, shape):
        return _patches(graph, layer, inner, x, shape)
    return _convolution(graph, layer, inner, x)


def is_patches(conv: nn.Conv2d, shape: Sequence[int]) -> bool:
    """Whether a convolution reads every pixel once, so that it is a linear layer on patches."""
    whole = all(side % size == 0 for side, size in zip(shape[2:], conv.kernel_size, strict=True))
    return whole and conv.kernel_size == conv.stride and conv.padding == (0, 0) and conv.groups == 1


def _linear(graph: GraphWriter, layer: QuantLayer, x: str) -> str:
    state, inputs = layer.state(), layer.input
    ranges = byte_ranges(inputs.grid) if inputs is not None and state is not None else None
    if ranges is None:
        parts = [x if inputs is None else write_rounded(graph, x, inputs.grid)]
        groups = _weights(graph, layer, state, None)
        products = [graph.node("MatMul", columns(part), weight) for part in parts for weight, columns in groups]
    else:
        groups = _weights(graph, layer, state, max(place.largest for place in ranges))
        products = []
        for coded in [write_codes(graph, x, place) for place in ranges]:
            for weight, columns in groups:
                products.append(graph.node("MatMul", write_values(graph, coded, columns=columns), weight))
    return _with_bias(graph, products, _bias(layer, state))


def _single_rows(graph: GraphWriter, layer: QuantLayer, inner: nn.Linear, x: str) -> str:
    """One row an image, as a matrix of one row each.

    ONNX Runtime makes a Gemm of a product of two matrices and a bias, and then turns all weights into floats each time.
    """
    rows = graph.node("Reshape", x, graph.integers(-1, 1, inner.in_features))
    return graph.node("Reshape", _linear(graph, layer, rows), graph.integers(-1, inner.out_features))


def _weights(
    graph: GraphWriter, layer: QuantLayer, state: WeightState | None, largest_input: int | None
) -> list[tuple[str, Columns]]:
    """The numbers (in, out) of every group of columns, and how to find its columns in the input.

    They are multiplied by bytes up to `largest_input`, or by floating-point numbers where that is None.
    """
    if state is None:
        return [(graph.constant(layer.weights()[0].detach().flatten(1).t().numpy()), lambda x: x)]
    if largest_input is not None and (joined := _joined(state)) is not None:
        return [(write_joined_weights(graph, joined, largest_input), lambda x: x)]
    found: list[tuple[str, Columns]] = []
    groups, count = state.scale.shape[1], state.shape[1]
    members = [np.arange(count) if state.group is None else np.flatnonzero(state.group == n) for n in range(groups)]
    largest = max(len(columns) for columns in members)
    for number, columns in enumerate(members):
        if not len(columns):
            continue
        scale, zero = state.scale[:, number].numpy(), state.zero[:, number].numpy().astype(np.int64)
        stored = StoredWeights(state.codes.numpy().T[columns], state.bits, scale, zero)
        if len(columns) == largest < count and fits_unsigned(zero):  # others are multiplied by 0
            rows = np.full(count, largest)
            rows[columns] = np.arange(largest)
            stored, columns = stored._replace(rows=rows), np.arange(count)
        if largest_input is None:
            weight = write_float_weights(graph, stored)
        else:
            weight = write_weights(graph, stored, largest_input)
        found.append((weight, _choose(graph, columns, count)))
    return found


def _joined(state: WeightState) -> JoinedWeights | None:
    """Two groups of columns as one; None where that cannot be."""
    joined = join_groups(state)
    if joined is None or state.group is None:
        return None
    zero, group = state.zero.t().numpy().astype(np.int64), state.group.numpy().astype(np.int64)
    return JoinedWeights(
        state.codes.numpy().T, state.bits, joined.step.numpy(), zero, joined.multiples.t().numpy(), group
    )


def _choose(graph: GraphWriter, columns: np.ndarray, count: int) -> Columns:
    if len(columns) == count:
        return lambda x: x
    indices = graph.constant(columns.astype(np.int64))
    return lambda x: graph.node("Gather", x, indices, axis=-1)


def _bias(layer: QuantLayer, state: WeightState | None) -> np.ndarray | None:
    bias = layer.weights()[1] if state is None else state.bias
    return None if bias is None else bias.detach().numpy()


def _with_bias(graph: GraphWriter, products: list[str], bias: np.ndarray | None) -> str:
    y = products[0]
    for product in products[1:]:
        y = graph.node("Add", y, product)
    return y if bias is None else graph.node("Add", y, graph.constant(bias))


def _patches(graph: GraphWriter, layer: QuantLayer, conv: nn.Conv2d, x: str, shape: Sequence[int]) -> str:
    """(batch, channels, height, width) to (batch, out, rows, columns) by a linear layer on unfolded patches."""
    _, channels, height, width = shape
    down, right = conv.kernel_size
    rows, columns = height // down, width // right
    tiles = graph.node("Reshape", x, graph.integers(-1, channels, rows, down, columns, right))
    tiles = graph.node("Transpose", tiles, perm=[0, 2, 4, 1, 3, 5])
    tiles = graph.node("Reshape", tiles, graph.integers(-1, rows * columns, channels * down * right))
    return _as_picture(graph, _linear(graph, layer, tiles), (rows, columns), conv.out_channels)


def _as_picture(graph: GraphWriter, tokens: str, grid: Sequence[int], dim: int) -> str:
    """(batch, rows * columns, dim) to (batch, dim, rows, columns)."""
    lines = graph.node("Reshape", tokens, graph.integers(-1, *grid, dim))
    return graph.node("Transpose", lines, perm=[0, 3, 1, 2])


def _convolution(graph: GraphWriter, layer: QuantLayer, conv: nn.Conv2d, x: str) -> str:
    """On bytes, or whole numbers in floating point, where the input has one step; numbers on their grids elsewhere."""
    state, inputs = layer.state(), layer.input
    place = byte_range(inputs.grid) if inputs is not None and state is not None else None
    if place is None or state is None or state.group is not None:
        rounded = x if inputs is None else write_rounded(graph, x, inputs.grid)
        weight = graph.constant(layer.weights()[0].detach().numpy())
        y = _convolve(graph, conv, rounded, weight)
    else:
        coded, step = write_codes(graph, x, place), state.scale[:, 0].numpy()
        whole = (state.codes.int() - state.zero[:, :1]).view_as(conv.weight).numpy()  # few, beside linear layers
        if not graph.packed and fits_signed(whole, place.largest):
            weight = graph.node("DequantizeLinear", graph.constant(whole.astype(np.int8)), graph.constant(step), axis=0)
            y = _convolve(graph, conv, write_values(graph, coded), weight)
        else:
            values = write_values(graph, coded._replace(scale=1.0))
            y = _convolve(graph, conv, values, graph.constant(whole.astype(np.float32)))
            y = graph.node("Mul", y, graph.constant((np.float32(place.scale) * step)[:, None, None]))
    bias = _bias(layer, state)
    return y if bias is None else graph.node("Add", y, graph.constant(bias[:, None, None]))


def _convolve(graph: GraphWriter, conv: nn.Conv2d, x: str, weight: str) -> str:
    assert not isinstance(conv.padding, str)
    pads = [*conv.padding, *conv.padding]
    strides, dilations = list(conv.stride), list(conv.dilation)
    return graph.node("Conv", x, weight, pads=pads, strides=strides, dilations=dilations, group=conv.groups)


def write_attend(graph: GraphWriter, attend: QuantAttend, q: str, k: str, v: str, bias: str | None, width: int) -> str:
    """softmax(q k^T / sqrt(width) + bias) v; q, k, v: (batch, heads, tokens, width)."""
    scores = write_scores(graph, attend, q, k, width)
    scores = scores if bias is None else graph.node("Add", scores, bias)
    grid = _grids(attend).get("p")
    if isinstance(grid, LogSqrt2Grid):  # probabilities themselves are never needed
        return _mix_powers(graph, attend, graph.node("LogSoftmax", scores, axis=-1), v, grid)
    return write_mix(graph, attend, graph.node("Softmax", scores, axis=-1), v)


def write_scores(graph: GraphWriter, attend: QuantAttend, q: str, k: str, width: int) -> str:
    """The first product, q k^T / sqrt(width)."""
    turned = graph.node("Transpose", k, perm=[0, 1, 3, 2])
    return _product(graph, attend, {"q": q, "k": turned}, factor=1 / math.sqrt(width))


def write_mix(graph: GraphWriter, attend: QuantAttend, p: str, v: str) -> str:
    """The second product, p v."""
    grid = _grids(attend).get("p")
    if isinstance(grid, LogSqrt2Grid):
        return _mix_powers(graph, attend, graph.node("Log", p), v, grid)
    return _product(graph, attend, {"p": p, "v": v})


def _product(graph: GraphWriter, attend: QuantAttend, operands: dict[str, str], factor: float = 1.0) -> str:
    """A product of two activations, times a factor; from bytes if both have them."""
    (left, one), (right, other) = operands.items()
    grids = _grids(attend)
    places = [byte_range(grids[name]) for name in operands if name in grids]
    ranges = [place for place in places if place is not None]
    both = len(ranges) == len(operands)
    signed = both and pair_fits_signed(*ranges)
    values = _operand(graph, one, grids.get(left), both, factor, signed)
    return graph.node("MatMul", values, _operand(graph, other, grids.get(right), both, signed=signed))


def _mix_powers(graph: GraphWriter, attend: QuantAttend, logarithm: str, v: str, grid: LogSqrt2Grid) -> str:
    """The same from logarithms of probabilities; the scale of their grid goes with the fewer numbers, v."""
    values = _operand(graph, v, _grids(attend).get("v"), both=True, factor=float(grid.scale))
    return graph.node("MatMul", write_powers(graph, logarithm, grid), values)


def _grids(attend: QuantAttend) -> dict[str, Grid]:
    return {name: module.grid for name, module in attend.all_grids().items()}


def _operand(
    graph: GraphWriter, x: str, grid: Grid | None, both: bool, factor: float = 1.0, signed: bool = False
) -> str:
    """An operand on its grid, times a factor; as bytes behind a DequantizeLinear if both of a product are."""
    place = byte_range(grid) if grid is not None and both else None
    if place is not None:
        return write_values(graph, write_codes(graph, x, place, signed), factor)
    rounded = x if grid is None else write_rounded(graph, x, grid)
    return rounded if factor == 1 else graph.node("Mul", rounded, *graph.floats(factor))
