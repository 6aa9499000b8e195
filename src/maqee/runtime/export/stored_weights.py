"""Weights in a file: no more bits than their codes have, and bytes as soon as the file is loaded.

Codes of b bits are stored as planes of 4, 2 and 1 bits, the lowest bits first: four as ONNX's own four-bit integers,
two and one side by side in bytes. Cast, BitShift and BitwiseOr put them together again. All of that has constant
inputs, so engines do it once, when they load the file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maqee.runtime.export.graph_writer import FLOAT, INT8, INT32, UINT8, GraphWriter

BYTE_BITS, NIBBLE = 8, 4
SIGNED = 127  # largest size of a signed byte
PAIR_SUM = 2**15 - 1  # what processors without VNNI add up two products in


class StoredWeights(NamedTuple):
    """Codes of a linear layer, ready to be multiplied.

    Attributes:
        codes: (in, out) whole numbers from 0 to 2^bits - 1.
        bits: of a code.
        scale: (out,) step of each output channel.
        zero: (out,) code of 0.
        rows: (all in,) where codes are of some input channels alone, the row of each, or their number for the others:
            these are multiplied by 0, which is quicker than to pick the channels out. They are put in when the file is
            loaded, and need zero points that are bytes.
    """

    codes: np.ndarray
    bits: int
    scale: np.ndarray
    zero: np.ndarray
    rows: np.ndarray | None = None


def planes(bits: int) -> list[int]:
    """Widths that a code is cut into, lowest bits first.

    Example:
        >>> planes(7)
        [4, 2, 1]
    """
    if bits == BYTE_BITS:
        return [BYTE_BITS]
    return [width for width in (4, 2, 1) if bits & width]


def write_weights(graph: GraphWriter, weights: StoredWeights, largest_input: int) -> str:
    """The numbers (in, out) that codes stand for, behind a DequantizeLinear that engines multiply through.

    Signed bytes without zero points are quickest. Two products of a signed and an unsigned byte are added in 16 bits on
    processors without VNNI, and what is too large for that is cut off without a word: where it could be, the weights
    are unsigned bytes with zero points, which are added in 32 bits everywhere.

    Args:
        graph: to write to.
        weights: codes and steps.
        largest_input: the largest byte that they are multiplied by.
    """
    offset = weights.codes.astype(np.int64) - weights.zero
    if not fits_signed(offset, largest_input) and not fits_unsigned(weights.zero):
        return write_float_weights(graph, weights)
    scale = graph.constant(weights.scale.astype(np.float32))
    if fits_signed(offset, largest_input) and not graph.packed:
        whole_rows = _in_rows(weights, offset, np.zeros_like(weights.zero)).astype(np.int8)
        return graph.node("DequantizeLinear", graph.constant(whole_rows), scale, axis=1)
    codes, zero = _write_codes(graph, weights), graph.constant(_smallest(weights.zero))
    if not fits_signed(offset, largest_input):
        return graph.node("DequantizeLinear", codes, scale, zero, axis=1)
    whole = graph.node("Sub", graph.node("Cast", codes, to=INT32), graph.node("Cast", zero, to=INT32))
    return graph.node("DequantizeLinear", graph.node("Cast", whole, to=INT8), scale, axis=1)


class JoinedWeights(NamedTuple):
    """Codes of a linear layer with two groups of input channels, whose steps are whole multiples of a common one.

    Attributes:
        codes: (in, out) whole numbers from 0 to 2^bits - 1.
        bits: of a code.
        scale: (out,) common step of each output channel.
        zero: (groups, out) code of 0.
        multiples: (groups, out) of the common step.
        group: (in,) which group an input channel is in.
    """

    codes: np.ndarray
    bits: int
    scale: np.ndarray
    zero: np.ndarray
    multiples: np.ndarray
    group: np.ndarray

    @property
    def whole(self) -> np.ndarray:
        """(in, out) multiples of the common step."""
        return (self.codes.astype(np.int64) - self.zero[self.group]) * self.multiples[self.group]


def write_joined_weights(graph: GraphWriter, weights: JoinedWeights, largest_input: int) -> str:
    """The same for two groups: one matrix of bytes, made from the codes when the file is loaded."""
    lift = 0 if fits_signed(weights.whole, largest_input) else SIGNED + 1  # what makes them unsigned
    scale, kind = graph.constant(weights.scale.astype(np.float32)), UINT8 if lift else INT8
    if graph.packed:
        codes = _write_codes(graph, StoredWeights(weights.codes, weights.bits, weights.scale, weights.zero[0]))
        group = graph.constant(weights.group.astype(np.int64))
        zero, multiples = (
            graph.node("Gather", graph.constant(table.astype(np.int32)), group, axis=0)  # (in, out)
            for table in (weights.zero, weights.multiples)
        )
        whole = graph.node("Mul", graph.node("Sub", graph.node("Cast", codes, to=INT32), zero), multiples)
        whole = graph.node("Add", whole, graph.constant(np.int32(lift))) if lift else whole
        rows = graph.node("Cast", whole, to=kind)
    else:
        rows = graph.constant((weights.whole + lift).astype(np.uint8 if lift else np.int8))
    middle = [graph.constant(np.full(weights.scale.shape, lift, np.uint8))] if lift else []
    return graph.node("DequantizeLinear", rows, scale, *middle, axis=1)


def write_float_weights(graph: GraphWriter, weights: StoredWeights) -> str:
    """The same for products in floating point: multiplied out when the file is loaded.

    A DequantizeLinear would not do. Engines take one in front of a float product as leave to round the other side.
    """
    codes, scale = _write_codes(graph, weights), graph.constant(weights.scale.astype(np.float32))
    zero = graph.node("Cast", graph.constant(_smallest(weights.zero)), to=FLOAT)
    return graph.node("Mul", graph.node("Sub", graph.node("Cast", codes, to=FLOAT), zero), scale)


def fits_signed(offset: np.ndarray, largest_input: int) -> bool:
    """Whether weights are signed bytes whose products with bytes up to `largest_input` fit into 16 bits in pairs."""
    largest = int(np.abs(offset).max(initial=0))
    return largest <= SIGNED and 2 * largest * largest_input <= PAIR_SUM


def fits_unsigned(zero: np.ndarray) -> bool:
    """Whether zero points are bytes."""
    return bool(zero.min() >= 0 and zero.max() <= 2**BYTE_BITS - 1)


def _write_codes(graph: GraphWriter, weights: StoredWeights) -> str:
    """(in, out) unsigned bytes, or (all in, out)."""
    if not graph.packed:
        return graph.constant(_in_rows(weights, weights.codes, weights.zero).astype(np.uint8))
    shift, joined = 0, ""
    for width in planes(weights.bits):
        part = (weights.codes >> shift) & (2**width - 1)
        plane = _write_plane(graph, part.astype(np.uint8), width)
        if shift:
            plane = graph.node("BitShift", plane, graph.constant(np.uint8(shift)), direction="LEFT")
        joined = graph.node("BitwiseOr", joined, plane) if joined else plane
        shift += width
    if weights.rows is None:
        return joined
    and_zero = graph.node("Concat", joined, graph.constant(weights.zero.astype(np.uint8)[None]), axis=0)
    return graph.node("Gather", and_zero, graph.constant(weights.rows.astype(np.int64)), axis=0)


def _in_rows(weights: StoredWeights, numbers: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Numbers (in, out) as (all in, out)."""
    return numbers if weights.rows is None else np.vstack([numbers, zero])[weights.rows]


def _write_plane(graph: GraphWriter, codes: np.ndarray, width: int) -> str:
    if width == BYTE_BITS:
        return graph.constant(codes)
    if width == NIBBLE:
        return graph.node("Cast", graph.four_bits(codes), to=UINT8)
    each = BYTE_BITS // width  # codes in a byte
    flat = np.append(codes.reshape(-1), np.zeros(-codes.size % each, np.uint8)).reshape(each, -1)
    shifts = (np.arange(each, dtype=np.uint8) * width)[:, None]
    stored = graph.constant(np.bitwise_or.reduce(flat << shifts, axis=0))  # (codes / each,)
    spread = graph.node("BitShift", stored, graph.constant(shifts), direction="RIGHT")  # (each, codes / each)
    kept = graph.node("BitwiseAnd", spread, graph.constant(np.uint8(2**width - 1)))
    row = graph.node("Reshape", kept, graph.integers(-1))
    if flat.size != codes.size:
        row = graph.node("Slice", row, graph.integers(0), graph.integers(codes.size))
    return graph.node("Reshape", row, graph.integers(*codes.shape))


def _smallest(zero: np.ndarray) -> np.ndarray:
    """Zero points in bytes, where they are so small."""
    return zero.astype(np.uint8) if fits_unsigned(zero) else zero.astype(np.int32)
