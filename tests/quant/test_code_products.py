"""Sums of products of codes are exact, whichever way they are made."""

from __future__ import annotations

import pytest
import torch

from maqee.quant import code_products
from maqee.quant.code_products import code_gram


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 4), (3000, 37), (70_000, 3)], ids=str)
@pytest.mark.parametrize("by_bytes", [True, False])
def test_exact(shape: tuple[int, int], by_bytes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not by_bytes:
        monkeypatch.setattr(code_products, "has_byte_products", lambda: False)
    codes = torch.randint(-128, 128, shape, generator=torch.Generator().manual_seed(0)).float()
    codes[: shape[0] // 2] = -128.0  # the largest products
    assert torch.equal(code_gram(codes), codes.double().t() @ codes.double())
