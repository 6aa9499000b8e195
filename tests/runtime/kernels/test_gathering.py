"""What a classifier reads: means, special tokens, and the mean of codes in front of a layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from maqee.models.config import ReadoutKind
from maqee.models.layers import Readout
from maqee.runtime.kernels.stored import StoredGrid, StoredWeights
from tests.helpers import randomize
from tests.runtime.kernels.makers import Case, make_layer


def test_by_hand(device: torch.device) -> None:
    """Two images, two tokens, one of them special; sums in two parts; codes 1, 3 and 0, 2."""
    from maqee.runtime.kernels.gathering import Gatherer
    from maqee.runtime.kernels.passing import Affine

    x = torch.tensor([[[1.0, 2.0], [9.0, 9.0]], [[3.0, 4.0], [9.0, 9.0]]], device=device)
    totals = torch.tensor([[[2.0, 4.0], [2.0, 0.0]], [[0.0, 0.0], [4.0, 8.0]]], device=device)
    codes = torch.tensor([[1, 0], [3, 2], [5, -1], [6, -2]], device=device, dtype=torch.int8)
    pooled = Affine(torch.tensor([1.0, 10.0], device=device), torch.tensor([0.5, 0.25], device=device))
    grid = StoredGrid(0.1, 130, 255)
    assert grid.rest == 2
    out, mean = Gatherer(None, 1, pooled, beside=False, grid=grid)(x, totals, codes, 2)
    assert out.tolist() == [[[1 + 2 + 0.5, 2 + 20 + 0.25]], [[3 + 2 + 0.5, 4 + 40 + 0.25]]]
    assert mean is not None
    assert mean.tolist() == [[2 - 2, 1 - 2], [5.5 - 2, -1.5 - 2]]
    out, mean = Gatherer(None, 1, pooled, beside=True)(x, totals, None, 2)
    assert out.tolist() == [[[1, 2], [2.5, 20.25]], [[3, 4], [2.5, 40.25]]]
    assert mean is None
    out, _ = Gatherer(None, 1, pooled, beside=False)(x, None, None, 2)  # no mean of tokens: only what is added
    assert out.tolist() == [[[1.5, 2.25]], [[3.5, 4.25]]]


@pytest.mark.parametrize("case", [Case(4, 4, 7), Case(8, 8, 100), Case(3, 7, -5)], ids=str)
@pytest.mark.parametrize("count", [1, 37])
@torch.no_grad()
def test_a_layer_of_the_mean_is_the_mean_of_a_layer(case: Case, count: int, device: torch.device) -> None:
    from maqee.runtime.kernels.fitness import store_layer
    from maqee.runtime.kernels.gathering import Gatherer
    from maqee.runtime.kernels.linear import Linear
    from maqee.runtime.kernels.passing import Affine
    from maqee.runtime.kernels.pooled_linear import PooledLinear
    from maqee.runtime.kernels.rows import RowCoder

    images, dim = 3, 20
    weights = store_layer(make_layer(case, dim, dim).to(device))
    assert isinstance(weights, StoredWeights)
    coded = RowCoder(weights)(torch.randn(images * count, dim, device=device))
    expected = Linear(weights)(coded)
    assert isinstance(expected, torch.Tensor)
    layer = PooledLinear(weights)
    nothing = torch.zeros(images, 2, dim, device=device)
    pooled, mean = Gatherer(None, 2, Affine(torch.ones_like(layer.bias), layer.bias), beside=False, grid=weights.grid)(
        nothing, None, coded.codes, count
    )
    assert mean is not None
    layer.add_to(pooled.view(-1, dim), mean)
    wanted = expected.view(images, count, dim).double().mean(dim=1)
    for special in (0, 1):
        assert torch.allclose(pooled[:, special].double(), wanted, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("kind", "front", "dtype"),
    [("mean", 0, torch.float32), ("mean", 3, torch.float16), ("class+mean", 1, torch.float16)],
    ids=["mean", "mean in half", "class and mean"],
)
@torch.no_grad()
def test_norm_mean_and_classifier(kind: ReadoutKind, front: int, dtype: torch.dtype, device: torch.device) -> None:
    from maqee.runtime.kernels.readouts import PooledReadout

    norm, readout = randomize(nn.LayerNorm(24)).to(device), randomize(Readout(24, 5, kind, front)).to(device)
    assert isinstance(norm, nn.LayerNorm)
    assert isinstance(readout, Readout)
    for count in (1, 16, 50):
        x = torch.randn(2, front + count, 24, device=device).to(dtype)
        got = PooledReadout(norm, readout)(x)
        assert got.dtype == torch.float32
        assert torch.allclose(got, readout(norm(x.float())), atol=1e-5)
        if kind == "mean":
            got = PooledReadout(norm, readout, pooled_norm=True)(x)
            assert torch.allclose(got, readout.linear(norm(readout.pool(x.float()))), atol=1e-5)
