"""Rates in proportion to weights: factors by hand, and which parameters share one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from maqee.compression.learning_rates import USUAL_SIZE, size_factor, size_factors


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1.0, 1.0), (50.0, 1.0), (1 / 2, 1 / 2), (1 / 9, 1 / 8), (1 / 30, 1 / 32), (0.0, 1.0)],
)
def test_factors(size: float, expected: float) -> None:
    """Powers of two, at most 1; the sign does not matter, and zeros have no size."""
    assert size_factor(USUAL_SIZE * torch.tensor([size, -size, size, -size])) == expected


def test_a_bias_goes_with_its_weights() -> None:
    small, norm, large = nn.Linear(3, 2), nn.LayerNorm(2), nn.Linear(2, 2)
    for parameter, size in ((small.weight, 1 / 8), (small.bias, 80.0), (large.weight, 16.0), (large.bias, 1e-5)):
        nn.init.constant_(parameter, USUAL_SIZE * size)
    model = nn.Sequential(small, norm, large)
    model.register_parameter("token", nn.Parameter(torch.full((1, 2), USUAL_SIZE / 4)))
    factors = size_factors(model)
    assert (factors.pop("token"), factors.pop("0.weight"), factors.pop("0.bias")) == (1 / 4, 1 / 8, 1 / 8)
    assert factors == dict.fromkeys(("1.weight", "1.bias", "2.weight", "2.bias"), 1.0)
