"""Numbers on grids, and weights in files: the same codes in ONNX as in the simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.quant.packing import packed_length
from maqee.runtime.export.coded_operands import (
    ByteRange,
    byte_range,
    pair_fits_signed,
    write_codes,
    write_rounded,
    write_values,
)
from maqee.runtime.export.graph_writer import GraphWriter
from maqee.runtime.export.stored_weights import (
    JoinedWeights,
    StoredWeights,
    fits_signed,
    planes,
    write_float_weights,
    write_joined_weights,
    write_weights,
)
from tests.runtime.onnx_runs import run_graph, run_written


def uniform(bits: int, scale: float, zero: float) -> UniformGrid:
    return UniformGrid(bits, torch.tensor(scale), torch.tensor(zero))


def numbers(scale: float) -> Tensor:
    """Far beyond every grid on both sides, with the border between every two codes of a grid with this step."""
    borders = (torch.arange(-600, 600).float() + 0.5) * scale
    return torch.cat([torch.randn(2000) * 40 * scale, borders, torch.zeros(1)])[None]


def test_a_byte_holds_a_grid_worked_out_by_hand() -> None:
    assert byte_range(uniform(4, 0.5, 3)) == ByteRange(0.5, 3, -3, 12)
    assert byte_range(uniform(4, 0.5, -7)) == ByteRange(0.5, 0, 7, 22)  # all numbers above 0: from byte 7 on
    assert byte_range(uniform(8, 0.5, -7)) is None  # 256 codes from byte 7 on are too many
    assert byte_range(uniform(4, 0.5, 300)) is None
    assert byte_range(uniform(4, 0.5, 2.5)) is None
    assert byte_range(LogSqrt2Grid(4, torch.tensor(1.0))) is None


@given(st.integers(2, 8), st.floats(2**-10, 2**10, width=32), st.integers(-20, 255))
def test_bytes_are_the_codes_of_the_simulation(bits: int, scale: float, zero: int) -> None:
    grid, x = uniform(bits, scale, zero), numbers(scale)
    place = byte_range(grid)
    if place is None:
        assert bits == 8 or zero < 0
        return
    wanted = (grid.codes(x) - grid.zero).numpy()
    for packed in (True, False):
        codes = run_written(lambda graph, name: write_codes(graph, name, place).codes, x, packed)
        assert np.array_equal(codes - place.zero, wanted)
    if place.fits_signed:
        assert np.array_equal(
            run_written(lambda graph, name: write_codes(graph, name, place, signed=True).codes, x, packed=False), wanted
        )


@pytest.mark.parametrize(
    "grid",
    [
        uniform(4, 0.1, 7),
        uniform(3, 0.1, 400),
        uniform(4, 0.1, 2.5),
        UniformGrid(4, torch.rand(5) + 0.1, torch.tensor([1.0, 3, 5, 7, 9])),
        TwinGrid(4, torch.tensor(0.02), torch.tensor(0.32), signed=True),
        TwinGrid(4, torch.tensor(0.01), torch.tensor(0.08), signed=False),
        LogSqrt2Grid(3, torch.tensor(0.9)),
        LogSqrt2Grid(8, torch.tensor(0.9)),
    ],
    ids=["bytes", "far zero", "real zero", "a step a channel", "twin", "twin probabilities", "log", "wide log"],
)
@pytest.mark.parametrize("packed", [True, False], ids=["onnxruntime", "openvino"])
def test_values_on_every_grid(grid: Grid, packed: bool) -> None:
    signed = not isinstance(grid, LogSqrt2Grid) and not (isinstance(grid, TwinGrid) and not grid.signed)
    x = torch.randn(40, 5) if signed else torch.cat([torch.rand(38, 5) ** 4, torch.zeros(1, 5), torch.ones(1, 5)])
    found = run_written(lambda graph, name: write_rounded(graph, name, grid), x, packed)
    assert np.allclose(found, grid(x).numpy(), rtol=1e-5, atol=1e-7)


def test_codes_are_cut_into_planes() -> None:
    assert [planes(bits) for bits in range(2, 9)] == [[2], [2, 1], [4], [4, 1], [4, 2], [4, 2, 1], [8]]


@given(st.integers(2, 8), st.integers(1, 7), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_stored_weights_are_the_numbers_that_codes_stand_for(bits: int, rows: int, columns: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 2**bits, (rows, columns)).astype(np.uint8)
    zero = random.integers(-3, 2**bits, columns)
    stored = StoredWeights(codes, bits, random.uniform(0.1, 1, columns).astype(np.float32), zero)
    wanted = (codes.astype(np.float32) - zero.astype(np.float32)) * stored.scale
    for packed in (True, False):
        graph = GraphWriter(packed)
        graph.add_input("x", ["batch", rows])
        graph.add_output("near", write_weights(graph, stored, 15), [rows, columns])
        graph.add_output("far", write_weights(graph, stored, 255), [rows, columns])
        graph.add_output("float", write_float_weights(graph, stored), [rows, columns])
        for found in run_graph(graph.model("test"), {"x": np.zeros((1, rows), np.float32)}):
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "bytes"])
def test_channels_of_another_group_are_multiplied_by_zero(packed: bool) -> None:
    random = np.random.default_rng(0)
    codes, zero = random.integers(0, 16, (3, 4)).astype(np.uint8), np.array([0, 7, 15, 40])  # one beyond the codes
    stored = StoredWeights(codes, 4, random.uniform(0.1, 1, 4).astype(np.float32), zero, rows=np.array([3, 0, 1, 3, 2]))
    wanted = np.zeros((5, 4), np.float32)
    wanted[[1, 2, 4]] = (codes.astype(np.float32) - zero) * stored.scale
    graph = GraphWriter(packed)
    graph.add_input("x", ["batch", 5])
    graph.add_output("near", write_weights(graph, stored, 15), [5, 4])
    graph.add_output("far", write_weights(graph, stored, 10_000), [5, 4])
    graph.add_output("float", write_float_weights(graph, stored), [5, 4])
    for found in run_graph(graph.model("test"), {"x": np.zeros((1, 5), np.float32)}):
        assert np.array_equal(found, wanted)


@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_two_groups_are_joined(bits: int, columns: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    codes, group = random.integers(0, 2**bits, (9, columns)).astype(np.uint8), random.integers(0, 2, 9)
    zero, multiples = random.integers(0, 2**bits, (2, columns)), random.integers(1, 128 // 2**bits + 1, (2, columns))
    scale = random.uniform(0.1, 1, columns).astype(np.float32)
    joined = JoinedWeights(codes, bits, scale, zero, multiples, group)
    wanted = (codes - zero[group]) * multiples[group] * scale
    for packed in (True, False):
        graph = GraphWriter(packed)
        graph.add_input("x", ["batch", 9])
        graph.add_output("near", write_joined_weights(graph, joined, 15), [9, columns])
        graph.add_output("far", write_joined_weights(graph, joined, 255), [9, columns])
        for found in run_graph(graph.model("test"), {"x": np.zeros((1, 9), np.float32)}):
            assert np.allclose(found, wanted, rtol=1e-6)


def test_two_activations_as_bytes_of_which_0_means_0() -> None:
    """Two products of a byte with 128 added to it and another one must stay below 2^15."""
    assert pair_fits_signed(ByteRange(0.1, 7, -7, 8), ByteRange(0.1, 0, 0, 15))
    assert pair_fits_signed(ByteRange(0.1, 32, -32, 31), ByteRange(0.1, 20, -20, 103))  # 2 * 159 * 103 = 32754
    assert not pair_fits_signed(ByteRange(0.1, 32, -32, 31), ByteRange(0.1, 104, -104, 20))
    assert pair_fits_signed(ByteRange(0.1, 0, 0, 255), ByteRange(0.1, 32, -32, 31))  # unsigned: nothing is added
    assert not pair_fits_signed(ByteRange(0.1, 0, 0, 255), ByteRange(0.1, 65, -65, 3))
    assert not pair_fits_signed(ByteRange(0.1, 0, 0, 15), ByteRange(0.1, 100, -100, 155))
    assert not pair_fits_signed(ByteRange(0.1, 100, -100, 155), ByteRange(0.1, 0, 0, 15))


def test_openvino_moves_what_is_rounded_already() -> None:
    graph = GraphWriter(packed=False)
    x = graph.add_input("x", ["batch", 6])
    moved = graph.node("Transpose", graph.node("Reshape", x, graph.integers(-1, 2, 3)), perm=[0, 2, 1])
    graph.add_output("y", write_values(graph, write_codes(graph, moved, ByteRange(1.0, 3, -3, 12))), ["batch", 3, 2])
    model = graph.model("test")
    assert [node.op_type for node in model.graph.node] == [
        "Clip",
        "QuantizeLinear",
        "DequantizeLinear",
        "Reshape",
        "Transpose",
        "Identity",
    ]
    (found,) = run_graph(model, {"x": np.array([[-4.0, 0.2, 1.6, 3, 11, 99]], np.float32)})
    assert found.tolist() == [[[-3, 3], [0, 11], [2, 12]]]


def test_what_no_output_needs_is_not_written() -> None:
    graph = GraphWriter()
    x = graph.add_input("x", ["batch", 2])
    graph.node("Add", x, *graph.floats(3))
    graph.add_output("y", graph.node("Mul", x, *graph.floats(2)), ["batch", 2])
    found = graph.model("test").graph
    assert [node.op_type for node in found.node] == ["Mul", "Identity"]
    assert len(found.initializer) == 1


@pytest.mark.parametrize(
    ("packed", "product", "wanted"),
    [
        (True, False, ["QuantizeLinear", "Clip"]),
        (True, True, ["Clip", "QuantizeLinear"]),
        (False, False, ["Clip", "QuantizeLinear"]),
    ],
    ids=["on bytes", "on floats behind a product", "on floats for OpenVINO"],
)
def test_where_codes_are_clipped(packed: bool, product: bool, wanted: list[str]) -> None:
    graph = GraphWriter(packed)
    x = graph.add_input("x", ["batch", 2, 2])
    if product:
        x = graph.node("Transpose", graph.node("MatMul", x, x), perm=[0, 2, 1])
    before = len(graph.nodes)
    write_codes(graph, x, ByteRange(0.5, 3, -3, 12))
    assert [node.op_type for node in graph.nodes[before:]] == wanted


def test_signed_weights_only_where_pairs_of_products_fit_into_16_bits() -> None:
    assert fits_signed(np.array([-127, 127]), 127)  # 2 * 127 * 127 = 32258
    assert not fits_signed(np.array([-127, 127]), 255)
    assert fits_signed(np.array([-64, 64]), 255)  # 2 * 64 * 255 = 32640
    assert not fits_signed(np.array([65]), 255)
    assert not fits_signed(np.array([-128]), 15)


def test_four_bits_take_half_a_byte() -> None:
    graph = GraphWriter()
    graph.four_bits(np.arange(15, dtype=np.uint8))
    (tensor,) = graph.constants.values()
    assert len(tensor.raw_data) == 8
    assert tensor.raw_data[0] == 0x10  # the first code is in the low bits


@pytest.mark.parametrize("bits", range(2, 9))
def test_weights_take_no_more_bits_than_their_codes(bits: int) -> None:
    graph, codes = GraphWriter(), np.random.default_rng(0).integers(0, 2**bits, (64, 48)).astype(np.uint8)
    write_weights(graph, StoredWeights(codes, bits, np.ones(48, np.float32), np.full(48, 2 ** (bits - 1))), 15)
    stored = sum(len(tensor.raw_data) for tensor in graph.constants.values())
    packed, steps = packed_length(codes.size, bits), 48 * (4 + 1)  # a step and a zero point a channel
    assert packed + steps <= stored <= packed + steps + 100
