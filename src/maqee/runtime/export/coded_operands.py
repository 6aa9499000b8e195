"""Numbers on a grid in standard ONNX operators: codes as unsigned bytes, or the values that codes stand for.

A uniform grid with one step is a QuantizeLinear. Its codes are bytes, of which a grid of a bits uses 2^a values: a Clip
behind it sees to that, on bytes, which are a quarter of what it would read in front. Codes that lie outside become the
outermost ones, as in the simulation. The Clip is in front and reads floats behind a product, because ONNX Runtime would
make one operator of a product and a QuantizeLinear that meet, which rounds differently where two codes are nearly tied.

OpenVINO, whose graphs are not packed, wants it otherwise: the Clip always in front; numbers rounded before they are
moved about, right behind the product that made them, which then puts out bytes; and two activations are multiplied on
bytes only where the byte 0 means 0. Then it runs all of attention as one operator on bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx
import torch

from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.runtime.export.graph_writer import GraphWriter
from maqee.runtime.export.stored_weights import PAIR_SUM, SIGNED

BYTE = 255
FAR = 1000.0  # steps, of which a fifth is too far for the exponential to be more than 0

Columns = Callable[[str], str]  # all channels to some of them


class ByteRange(NamedTuple):
    """How a uniform grid lies in a byte.

    Attributes:
        scale: the step.
        zero: the byte that means 0.
        low: the outermost points of the grid, in steps.
        high: likewise.
    """

    scale: float
    zero: int
    low: int
    high: int

    @property
    def largest(self) -> int:
        """The largest byte that occurs."""
        return self.high + self.zero

    @property
    def fits_signed(self) -> bool:
        """Whether signed bytes hold it with 0 for 0."""
        return self.low >= -SIGNED and self.high <= SIGNED

    @property
    def fills_byte(self) -> bool:
        """Whether it has the ends of a byte, so that nothing is to be clipped."""
        return self.high - self.low == BYTE


class Coded(NamedTuple):
    """Bytes in a graph, and what they stand for.

    Attributes:
        codes: their name.
        scale: value = (byte - zero) * scale.
        zero: likewise.
        moves: what is still to be done with them, to have them where they are needed.
    """

    codes: str
    scale: float
    zero: np.uint8 | np.int8
    moves: Sequence[onnx.NodeProto] = ()


def byte_range(grid: Grid) -> ByteRange | None:
    """How a grid lies in a byte; None where it does not: several steps, no whole zero point, or far from zero."""
    if not isinstance(grid, UniformGrid) or grid.scale.numel() != 1 or grid.zero.numel() != 1:
        return None
    zero = float(grid.zero)
    if not zero.is_integer():
        return None
    byte_zero = min(max(int(zero), 0), BYTE)
    found = ByteRange(float(grid.scale), byte_zero, -int(zero), grid.top - int(zero))
    return found if found.low + byte_zero >= 0 and found.largest <= BYTE else None


def byte_ranges(grid: Grid) -> list[ByteRange] | None:
    """The same for a grid that is a sum of such: each side of a signed twin grid is one, and 0 on the other side."""
    if isinstance(grid, TwinGrid) and grid.signed and grid.fine.numel() == 1:
        top = grid.levels - 1
        return [ByteRange(float(grid.fine), top, -top, 0), ByteRange(float(grid.coarse), 0, 0, top)]
    found = byte_range(grid)
    return None if found is None else [found]


def pair_fits_signed(left: ByteRange, right: ByteRange) -> bool:
    """Whether two activations can be multiplied as bytes of which 0 means 0, on every processor.

    The left one may be unsigned where its smallest number is 0. Signed, it is multiplied with 128 added to it; and
    processors without VNNI add two products in 16 bits.
    """
    largest = left.high if left.zero == 0 else left.high + SIGNED + 1
    fits = right.fits_signed and (left.zero == 0 or left.fits_signed)
    return fits and 2 * largest * max(-right.low, right.high) <= PAIR_SUM


def write_codes(graph: GraphWriter, x: str, place: ByteRange, signed: bool = False) -> Coded:
    """Round to bytes.

    Args:
        graph: to write to.
        x: numbers.
        place: their grid.
        signed: for OpenVINO, let the byte 0 mean 0; the grid must allow it.
    """
    step, zero = graph.constant(np.float32(place.scale)), np.uint8(place.zero)
    source, moves = graph.moved_from(x)
    if not graph.packed:
        chosen = np.int8(0) if signed and place.zero else zero
        codes = graph.node("QuantizeLinear", _clipped(graph, source, place), step, graph.constant(chosen))
        return Coded(codes, place.scale, chosen, moves)
    if place.fills_byte or graph.made_by(source, "MatMul"):
        codes = graph.node("QuantizeLinear", _clipped(graph, x, place), step, graph.constant(zero))
    else:
        ends = (graph.constant(np.uint8(end + place.zero)) for end in (place.low, place.high))
        codes = graph.node("Clip", graph.node("QuantizeLinear", x, step, graph.constant(zero)), *ends)
    return Coded(codes, place.scale, zero)


def _clipped(graph: GraphWriter, x: str, place: ByteRange) -> str:
    """Numbers within the ends of a grid."""
    if place.fills_byte:
        return x
    ends = (graph.constant(np.float32(place.scale) * np.float32(end)) for end in (place.low, place.high))
    return graph.node("Clip", x, *ends)


def write_values(graph: GraphWriter, coded: Coded, factor: float = 1.0, columns: Columns = lambda x: x) -> str:
    """What codes stand for, times a factor, where they are needed; or some columns of it.

    ONNX Runtime looks for bytes in front of a product, OpenVINO for those that become numbers again at once.
    """
    scale, zero = graph.constant(np.float32(coded.scale) * np.float32(factor)), graph.constant(coded.zero)
    if graph.packed:
        return graph.node("DequantizeLinear", columns(coded.codes), scale, zero)
    return columns(graph.move(graph.node("DequantizeLinear", coded.codes, scale, zero), coded.moves))


def write_rounded(graph: GraphWriter, x: str, grid: Grid) -> str:
    """The nearest points of any grid, as numbers: for products that stay in floating point."""
    ranges = byte_ranges(grid)
    if ranges is not None:
        parts = [write_values(graph, write_codes(graph, x, place)) for place in ranges]
        return parts[0] if len(parts) == 1 else graph.node("Add", *parts)
    if isinstance(grid, UniformGrid):
        return _uniform(graph, x, grid)
    return _twin(graph, x, grid) if isinstance(grid, TwinGrid) else _logarithmic(graph, x, grid)


def _uniform(graph: GraphWriter, x: str, grid: UniformGrid) -> str:
    """A step for each channel, or a zero point that is no integer."""
    scale, zero = graph.constant(_array(grid.scale)), graph.constant(_array(grid.zero))
    codes = graph.node("Add", graph.node("Round", graph.node("Div", x, scale)), zero)
    kept = graph.node("Clip", codes, *graph.floats(0, grid.top))
    return graph.node("Mul", graph.node("Sub", kept, zero), scale)


def _twin(graph: GraphWriter, x: str, grid: TwinGrid) -> str:
    """Two regions that both begin at 0: whichever point is nearer."""
    points, away = [], []
    for step in (grid.fine, grid.coarse):
        scale = graph.constant(_array(step))
        code = graph.node("Clip", graph.node("Round", graph.node("Div", x, scale)), *graph.floats(0, grid.levels - 1))
        points.append(graph.node("Mul", code, scale))
        away.append(graph.node("Abs", graph.node("Sub", points[-1], x)))
    return graph.node("Where", graph.node("LessOrEqual", *away), *points)


def _logarithmic(graph: GraphWriter, x: str, grid: LogSqrt2Grid) -> str:
    """Powers of 1/sqrt(2) times the scale; what is smaller than the smallest is 0."""
    powers = write_powers(graph, graph.node("Log", x), grid)
    return graph.node("Mul", powers, graph.constant(_array(grid.scale)))


def write_powers(graph: GraphWriter, logarithm: str, grid: LogSqrt2Grid) -> str:
    """Natural logarithms of numbers to their powers of 1/sqrt(2) on a grid, not yet times its scale.

    A code is the number of steps of ln(2) / 2 below ln(scale). As a byte it is counted down from 255, whose ends do
    what clipping would do. ThresholdedRelu cuts half a step below the smallest power that is kept.

    OpenVINO makes one operator of what takes one number after the other, and of bytes and comparisons it does not. So
    there, codes are floats; and what is below the smallest power is sent so far down that its exponential is 0.
    """
    size = math.log(2) / 2
    below = graph.node("Sub", logarithm, *graph.floats(math.log(float(grid.scale))))
    if graph.packed:
        step, top = graph.constant(np.float32(size)), graph.constant(np.uint8(BYTE))
        steps = graph.node("DequantizeLinear", graph.node("QuantizeLinear", below, step, top), step, top)
        return graph.node("ThresholdedRelu", graph.node("Exp", steps), alpha=2.0 ** -((grid.none - 0.5) / 2))
    above, factor = graph.floats(grid.none - 0.5), graph.floats(1 / size)
    steps = graph.node("Clip", graph.node("Round", graph.node("Mul", below, *factor)), *graph.floats(-FAR, 0))
    cut = graph.node("LeakyRelu", graph.node("Add", steps, *above), alpha=FAR)
    return graph.node("Exp", graph.node("Mul", graph.node("Sub", cut, *above), *graph.floats(size)))


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()
