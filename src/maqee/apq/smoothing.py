"""What an answer is worth, judged by how sure the exits are.

Whether one image was right is a coin's toss beside what its confidences say, and the best of thousands of policies is
best in part because its tosses fell well. A policy looks at confidences alone. So each answer may be replaced by the
probability that it is right, given the confidences of the image at all exits: what is expected of any policy stays the
same, and the tosses are gone. Policies chosen so are better on images that had no part in it, most where few images
choose.

The probability is a logistic function of the ranks of an image's confidences among those of its exit: only their order
matters, as it does to thresholds. It must look at all exits: images that went on because an early one was unsure are
less often right later than others of the same confidence there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from maqee.apq.trace import Trace

Floats = NDArray[np.float64]

_RIDGE = 1.0  # keeps coefficients finite where the answers can be told apart without an error
_MOST_STEPS, _LONGEST_STEP, _ENOUGH = 50, 4.0, 1e-8


def smoothed(trace: Trace) -> Trace:
    """The same pass, with every score replaced by what is expected of it, given the confidences of its image."""
    features = _features(trace.confidence.astype(np.float64))
    columns = [fit_scores(features, column) for column in trace.correct.T.astype(np.float64)]
    return replace(trace, correct=np.stack(columns, axis=1).astype(np.float32))


def fit_scores(features: Floats, scores: Floats) -> Floats:
    """Logistic regression of scores from 0 to 1, by Newton's method: the fitted value of every sample.

    The mean of what is fitted is the mean of the scores. Sums are of one order whatever the number of threads.

    Args:
        features: (samples, features), the first one 1; its coefficient alone is not kept small.
        scores: (samples,).
    """
    ridge = np.full(features.shape[1], _RIDGE)
    ridge[0] = 1e-9
    mean = np.clip(scores.mean(), 1e-3, 1 - 1e-3)
    coefficients = np.zeros(features.shape[1])
    coefficients[0] = np.log(mean / (1 - mean))
    for _ in range(_MOST_STEPS):
        fitted = _probability(features, coefficients)
        slope = np.maximum(fitted * (1 - fitted), 1e-6)
        gradient = np.einsum("ni,n->i", features, scores - fitted) - ridge * coefficients
        curvature = np.einsum("ni,n,nj->ij", features, slope, features) + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        length = float(np.abs(step).max())
        coefficients = coefficients + step * min(1.0, _LONGEST_STEP / max(length, _ENOUGH))
        if length < _ENOUGH:
            break
    return _probability(features, coefficients)


def _features(confidence: Floats) -> Floats:
    """1 and the ranks of the confidences at every exit, with mean 0 and deviation 1: (samples, 1 + exits)."""
    ranks = np.stack([middle_ranks(column) for column in confidence.T], axis=1)
    spread = ranks.std(axis=0)
    ranks = (ranks - ranks.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.concatenate([np.ones((len(ranks), 1)), ranks], axis=1)


def middle_ranks(values: Floats) -> Floats:
    """How many values are smaller, and half of those that are equal, itself included.

    Example:
        >>> middle_ranks(np.array([0.2, 0.9, 0.2, 0.1])).tolist()
        [2.0, 3.5, 2.0, 0.5]
    """
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - count / 2)[place])


def _probability(features: Floats, coefficients: Floats) -> Floats:
    odds = np.clip(np.einsum("ni,i->n", features, coefficients), -30, 30)
    return np.asarray(1 / (1 + np.exp(-odds)))
