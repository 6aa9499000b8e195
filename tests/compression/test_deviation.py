"""The tensor versions of two risk terms are the arrays' ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.apq import risks
from maqee.compression.model_measure import noise_ratio, range_deviation


@settings(max_examples=40)
@given(
    shape=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    noise=st.sampled_from([0.0, 0.01, 1.0]),
    seed=st.integers(0, 999),
)
def test_equal_to_the_reference(shape: list[int], noise: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    reference = torch.randn(shape, generator=generator)
    output = reference + noise * torch.randn(shape, generator=generator)
    for ours, theirs in ((range_deviation, risks.range_deviation), (noise_ratio, risks.noise_ratio)):
        if reference.flatten(1).shape[1] == 1 and ours is range_deviation:
            continue  # a range of nothing: both divide by epsilon
        found = ours(reference, output)
        assert found.shape == (shape[0],)
        np.testing.assert_allclose(found.numpy(), theirs(reference.numpy(), output.numpy()), rtol=2e-3, atol=1e-6)


def test_by_hand() -> None:
    """Range 4 becomes 5: (5/4 - 1)^2. Squares 1 + 9 against a change of 1 in one place: 1/10."""
    reference, output = torch.tensor([[-1.0, 3.0]]), torch.tensor([[-1.0, 4.0]])
    assert float(range_deviation(reference, output)) == pytest.approx(1 / 16)
    assert float(noise_ratio(reference, output)) == pytest.approx(0.1)


@pytest.mark.parametrize("measure", [range_deviation, noise_ratio])
def test_every_sample_for_itself(measure: object) -> None:
    assert callable(measure)
    reference, output = torch.randn(5, 3, 4), torch.randn(5, 3, 4)
    alone: list[Tensor] = [measure(reference[i : i + 1], output[i : i + 1])[0] for i in range(5)]
    torch.testing.assert_close(measure(reference, output), torch.stack(alone))


def test_nothing_to_divide_by() -> None:
    nothing = torch.zeros(2, 3)
    assert torch.isfinite(range_deviation(nothing, torch.ones(2, 3))).all()
    assert torch.isfinite(noise_ratio(nothing, torch.ones(2, 3))).all()
