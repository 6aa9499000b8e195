"""Sums of products of codes are exact."""

from __future__ import annotations

import pytest
import torch

from maqee.quant.code_products import code_gram


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 4), (3000, 37), (70_000, 3)], ids=str)
def test_exact(shape: tuple[int, int]) -> None:
    codes = torch.randint(-128, 128, shape, generator=torch.Generator().manual_seed(0)).float()
    codes[: shape[0] // 2] = -128.0  # the largest products
    assert torch.equal(code_gram(codes), codes.double().t() @ codes.double())
