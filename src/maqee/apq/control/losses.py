"""Bounded losses at every exit: the only ones about which anything can be guaranteed.

Cross-entropy has no upper bound, so no finite sample limits its mean. The 0-1 loss lies in 0..1: it is 1 - score where
the score of an image says whether the answer is right. "score" is 1 - score of any other task whose score of an image
lies in 0..1: segmentation, detection. The Brier score, from probabilities, lies in 0..2. With the full-depth prediction
in place of the label it gives the consistency gap, which needs no labels (Jazbec et al. 2024).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maqee.errors import MaqeeError

Array = NDArray[np.float64]
LossName = Literal["zero-one", "brier", "score"]
BOUNDS: dict[str, float] = {
    "zero-one": 1.0,
    "brier": 2.0,
    "score": 1.0,
}  # B: the largest value a gap of two losses can take


def brier_losses(probabilities: ArrayLike, labels: ArrayLike) -> Array:
    """sum_c (p_c - 1[c = label])^2: (n, exits + 1, classes) and (n,) to (n, exits + 1).

    Example:
        >>> brier_losses([[[0.75, 0.25]]], [1])
        array([[1.125]])
    """
    probability, label = _checked(probabilities, labels)
    truth = np.eye(probability.shape[-1])[label]  # (n, classes)
    return np.square(probability - truth[:, None, :]).sum(axis=-1)


def _checked(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Array, NDArray[np.intp]]:
    probability, label = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if probability.ndim != 3 or probability.size == 0:
        raise MaqeeError(f"Probabilities must be (samples, exits + 1, classes), not of shape {probability.shape}.")
    if not np.isfinite(probability).all() or (probability < 0).any() or (abs(probability.sum(-1) - 1) > 1e-3).any():
        raise MaqeeError("Probabilities must be from 0 to 1 and sum to 1 over the classes: apply the softmax first.")
    n, _, classes = probability.shape
    if label.shape != (n,) or not np.issubdtype(label.dtype, np.integer):
        raise MaqeeError(f"Give one whole number as the label of each of the {n} samples, not {label.shape} numbers.")
    if label.min() < 0 or label.max() >= classes:
        raise MaqeeError(f"Labels must be from 0 to {classes - 1}, but go from {label.min()} to {label.max()}.")
    return probability, label.astype(np.intp)
