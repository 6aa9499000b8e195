"""Columns with a grid of their own: by hand, and by counting one weight at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.quant.methods.erq import outlier_columns


def counted(weight: Tensor) -> list[int]:
    """Loops: who sticks out in each row, who does so most often."""
    marks: Counter[int] = Counter()
    for row in weight.tolist():
        positive, negative = [w for w in row if w > 0], [w for w in row if w < 0]
        high = np.quantile(np.array(positive, np.float32), 0.99) if positive else np.inf
        low = np.quantile(np.array(negative, np.float32), 0.01) if negative else -np.inf
        marks.update(column for column, w in enumerate(row) if np.float32(w) > high or np.float32(w) < low)
    wanted = min(len(weight) // 20, weight.shape[1] - 1)
    chosen = [column for column, _ in marks.most_common()]  # of equals, the first that was met
    chosen += [column for column in range(weight.shape[1]) if column not in chosen]
    return sorted(chosen[:wanted])


def test_by_hand() -> None:
    """Forty rows: column 2 has every row's largest weight, column 4 the most negative one; two are set apart."""
    weight = torch.tensor([[0.1, 0.2, 3.0, -0.1, -2.0, -0.2]]).repeat(40, 1)
    assert outlier_columns(weight).tolist() == [0, 0, 1, 0, 1, 0]
    assert outlier_columns(weight[:39]).tolist() == [0, 0, 1, 0, 0, 0]  # of equals, the first
    assert outlier_columns(weight).dtype == torch.uint8


def test_of_equals_the_one_met_first() -> None:
    """Column 3 sticks out in the first ten rows, column 1 in the other ten: one is to be set apart."""
    weight = torch.full((20, 4), 0.1)
    weight[:10, 3] = weight[10:, 1] = 5.0
    assert outlier_columns(weight).tolist() == [0, 0, 0, 1]
    assert outlier_columns(weight.flip(0)).tolist() == [0, 1, 0, 0]


def test_few_outputs_have_no_group() -> None:
    assert not outlier_columns(torch.randn(19, 8)).any()
    assert not outlier_columns(torch.randn(200, 1)).any()  # one column must stay


def test_rows_of_one_sign() -> None:
    """A single positive weight is its own percentile and does not stick out."""
    weight = -torch.ones(20, 3)
    weight[:, 1] = 2.0
    weight[:, 2] = -9.0
    assert outlier_columns(weight).tolist() == [0, 0, 1]
    assert outlier_columns(torch.ones(20, 3)).tolist() == [1, 0, 0]  # nobody sticks out: the first, as good as any


@settings(max_examples=30)
@given(out=st.integers(1, 90), width=st.integers(1, 30), seed=st.integers(0, 999))
def test_counted_one_by_one(out: int, width: int, seed: int) -> None:
    weight = torch.randn(out, width, generator=torch.Generator().manual_seed(seed))
    weight[:, :: max(1, width // 3)] *= 3
    group = outlier_columns(weight)
    assert group.shape == (width,)
    assert group.nonzero().flatten().tolist() == counted(weight)
