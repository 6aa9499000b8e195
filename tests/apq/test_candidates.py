"""Thresholds worth looking at: confidences that were seen, spread evenly over the samples."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq.candidates import GRID, quantile_values
from maqee.policy import NEVER


def test_a_few_samples_are_all_candidates() -> None:
    seen = np.array([0.5, 0.25, 0.75, 0.25], dtype=np.float32)
    assert quantile_values(seen).tolist() == [0.0, 0.25, 0.5, 0.75, NEVER]


def test_each_lets_one_in_a_hundred_more_go() -> None:
    seen = (np.arange(1, 1001) / 1024).astype(np.float32)  # exact in single precision
    values = quantile_values(seen)
    assert values.tolist() == [0.0, *(k * 10 / 1024 for k in range(1, 101)), NEVER]
    leaving = [(seen >= value).sum() for value in values[1:-1]]
    assert leaving == [1001 - 10 * k for k in range(1, 101)]


def test_crowded_confidences_leave_a_rich_choice() -> None:
    """Where the grid has nine values to offer, a hundred different shares of the samples can leave."""
    seen = np.random.default_rng(0).uniform(0.88, 0.96, 5000).astype(np.float32)

    def shares(values: list[float]) -> int:
        return len({int((seen >= np.float32(value)).sum()) for value in values})

    assert shares(quantile_values(seen).tolist()) == 102
    assert shares(list(GRID)) <= 10


def test_rounding_above_one_is_no_threshold() -> None:
    assert quantile_values(np.array([0.5, 1.00005], dtype=np.float32)).tolist() == [0.0, 0.5, 1.0, NEVER]


def test_nobody_was_seen() -> None:
    assert quantile_values(np.zeros((3, 0), dtype=np.float32)).tolist() == [0.0, NEVER]


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=400))
def test_they_are_confidences_of_samples(seen: list[float]) -> None:
    array = np.array(seen, dtype=np.float32)
    values = quantile_values(array)
    assert values.size <= 102
    assert (np.diff(values) > 0).all()
    assert (values[0], values[-1]) == (0.0, NEVER)
    assert set(values[1:-1]) <= set(array.astype(np.float64))
    assert array.max() in values
    # Between neighbours no more than a hundredth of the samples is passed over, samples with one confidence aside.
    between = [((array > low) & (array < high)).sum() for low, high in pairwise(values)]
    assert max(between) <= max(0, -(-array.size // 100) - 1)


def test_pooled_over_exits() -> None:
    seen = np.array([[0.1, 0.9], [0.2, 0.8]], dtype=np.float32)
    assert quantile_values(seen).tolist() == pytest.approx([0.0, 0.1, 0.2, 0.8, 0.9, NEVER])
