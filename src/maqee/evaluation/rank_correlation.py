"""Spearman's rank correlation, of many columns at once, which resampling needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

Floats = NDArray[np.float64]


def rank_correlation(one: ArrayLike, other: ArrayLike) -> float | None:
    """Spearman's rank correlation, equal values sharing their mean rank; None if either side has no order at all."""
    left, right = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    found = float(rank_correlations(left[:, None], right[:, None]).item())
    return None if np.isnan(found) else found


def rank_correlations(one: Floats, other: Floats) -> Floats:
    """Spearman's rank correlation of every column: (..., samples, columns) to (..., columns), nan without an order."""
    left, right = rankdata(one, axis=-2), rankdata(other, axis=-2)
    left, right = left - left.mean(axis=-2, keepdims=True), right - right.mean(axis=-2, keepdims=True)
    size = np.sqrt((left**2).sum(axis=-2) * (right**2).sum(axis=-2))
    together: Floats = (left * right).sum(axis=-2)
    return np.divide(together, size, out=np.full_like(size, np.nan), where=size > 0)
