"""Float rows to codes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maqee.runtime.kernels.statements import state_rows
from maqee.runtime.kernels.stored import StoredWeights
from tests.runtime.kernels.makers import Case, assert_same_codes, make_layer


@pytest.mark.parametrize("case", [Case(4, 4, 7), Case(8, 8, 100, grouped=True), Case(8, 6, 30)], ids=str)
@pytest.mark.parametrize("normed", [True, False], ids=["norm", "plain"])
def test_codes_in_the_order_of_the_layer(case: Case, normed: bool, device: torch.device) -> None:
    from maqee.runtime.kernels.fitness import store_layer
    from maqee.runtime.kernels.rows import RowCoder

    weights = store_layer(make_layer(case, 70, 6).to(device))
    assert isinstance(weights, StoredWeights)
    norm = nn.LayerNorm(70, eps=1e-6)
    with torch.no_grad():
        norm.weight.copy_(0.3 + torch.rand(70))
        norm.bias.copy_(0.2 * torch.randn(70))
    x = 0.7 * torch.randn(3, 5, 70) + 0.4
    coded = RowCoder(weights, norm.to(device) if normed else None)(x.to(device))
    flat = x.view(15, 70)
    y = F.layer_norm(flat, (70,), norm.weight.cpu(), norm.bias.cpu(), 1e-6).detach() if normed else flat
    order = torch.arange(70) if weights.columns is None else weights.columns.cpu().long()
    there, codes = order >= 0, coded.codes.cpu()
    assert_same_codes(codes[:, there], y[:, order[there]], weights.grid)
    assert not bool(codes[:, ~there].any())
    if weights.rests is None:
        assert coded.sums is None
    else:
        assert coded.sums is not None
        halves = [codes[:, : weights.split], codes[:, weights.split :]][: weights.groups]
        assert torch.equal(coded.sums.cpu(), torch.stack([half.sum(dim=1, dtype=torch.int32) for half in halves]))


def test_statement_has_the_same_order() -> None:
    """What tests compare with puts columns where the kernel does."""
    from maqee.runtime.kernels.fitness import store_layer

    weights = store_layer(make_layer(Case(4, 4, 7, grouped=True), 10, 6, scale=1.0))
    assert isinstance(weights, StoredWeights)
    assert weights.columns is not None
    x = torch.arange(-5.0, 5.0)[None]  # column c holds c - 5
    codes = state_rows(x, weights)[0]
    assert codes[:8].tolist() == [-5, -4, -2, -1, 0, 1, 3, 4]  # columns 2 and 7 are the second group
    assert codes[64:66].tolist() == [-3, 2]
