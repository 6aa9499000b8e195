"""The linear kernel against the layer that it stands for, which computes on integers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from maqee.quant.layer import QuantLayer
from maqee.runtime.kernels.stored import StoredGrid, StoredWeights
from tests.runtime.kernels.makers import CASES, Case, assert_same_codes, make_layer

ROWS, INPUTS, OUTPUTS = 131, 70, 133  # more than a tile, and no whole number of them


def prepared(case: Case, device: torch.device, outputs: int = OUTPUTS) -> tuple[QuantLayer, StoredWeights]:
    from maqee.runtime.kernels.fitness import store_layer

    layer = make_layer(case, INPUTS, outputs)
    weights = store_layer(make_layer(case, INPUTS, outputs).to(device))
    assert isinstance(weights, StoredWeights)
    return layer, weights


def rows() -> Tensor:
    return 0.7 * torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float_output(case: Case, device: torch.device) -> None:
    from maqee.runtime.kernels.linear import Linear
    from maqee.runtime.kernels.rows import RowCoder

    layer, weights = prepared(case, device)
    x, stream = rows(), torch.randn(ROWS, OUTPUTS)
    coded = RowCoder(weights)(x.to(device))
    expected = layer(x)
    got = Linear(weights)(coded)
    added = Linear(weights)(coded, stream.to(device))
    assert isinstance(got, Tensor)
    assert isinstance(added, Tensor)
    if device.type == "cpu" and not case.common:
        assert torch.equal(got, expected)
        assert torch.equal(added, stream + expected)
    hair = 1e-6 * float(expected.abs().max())  # sums are exact; they may be multiplied and added up in another order
    assert float((got.cpu() - expected).abs().max()) < hair
    assert float((added.cpu() - (stream + expected)).abs().max()) < hair


@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[4]], ids=str)
def test_codes_of_three_grids_and_their_sums(case: Case, device: torch.device) -> None:
    from maqee.runtime.kernels.linear import Linear
    from maqee.runtime.kernels.passing import Coded, Target
    from maqee.runtime.kernels.rows import RowCoder

    layer, weights = prepared(case, device, outputs=132)
    grids = [StoredGrid(0.31, 7, 15), StoredGrid(0.017, 140, 255), StoredGrid(0.9, 1, 3)]
    x = rows()
    coded = Linear(weights, Target(grids, 144, sums=True))(RowCoder(weights)(x.to(device)))
    assert isinstance(coded, Coded)
    assert coded.sums is not None
    expected, codes = layer(x), coded.codes.cpu()
    for number, grid in enumerate(grids):
        here = slice(44 * number, 44 * (number + 1))
        assert_same_codes(codes[:, here], expected[:, here], grid)
    assert torch.equal(coded.sums.cpu()[0], codes[:, :132].sum(dim=1, dtype=torch.int32))


def test_gelu_and_codes(device: torch.device) -> None:
    from maqee.runtime.kernels.linear import Linear
    from maqee.runtime.kernels.passing import Coded, Target
    from maqee.runtime.kernels.rows import RowCoder

    layer, weights = prepared(Case(4, 4, 7), device)
    x, grid = rows(), StoredGrid(0.02, 9, 255)
    coded = Linear(weights, Target([grid], 192, sums=False), gelu=True)(RowCoder(weights)(x.to(device)))
    assert isinstance(coded, Coded)
    assert coded.codes.shape == (ROWS, 192)
    assert coded.sums is None
    assert_same_codes(coded.codes.cpu()[:, :OUTPUTS], F.gelu(layer(x)), grid, hair=2e-4)


def test_stream_in_half(device: torch.device) -> None:
    """Sums are made in float32, as with a stream in float32, and rounded once."""
    from maqee.runtime.kernels.linear import Linear
    from maqee.runtime.kernels.rows import RowCoder

    _, weights = prepared(Case(4, 4, 7), device)
    x, stream = rows().to(device), (30 * torch.randn(ROWS, OUTPUTS)).half().to(device)
    stream[3], stream[4] = 65504.0, -65504.0
    multiply, coded = Linear(replace(weights, bias=weights.bias * 1000)), RowCoder(weights)(x)
    added, expected = multiply(coded, stream), multiply(coded, stream.float())
    assert isinstance(added, Tensor)
    assert isinstance(expected, Tensor)
    assert float(expected.abs().max()) > 65520, "nothing is beyond float16, so that this shows nothing"
    assert added.dtype == torch.float16
    assert bool(added.isfinite().all())
    assert torch.equal(added, expected.clamp(-65504, 65504).half())
