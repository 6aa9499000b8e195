"""Which thresholds an exit may have: values worth looking at, as arrays alone.

Lists ascend from 0, where everybody leaves, to never.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maqee.policy import NEVER

Floats = NDArray[np.float64]
GRID: tuple[float, ...] = (*(step / 100 for step in range(101)), NEVER)
QUANTILES = 100


def quantile_values(confidence: NDArray[np.floating]) -> Floats:
    """At most 100 of the confidences that were seen, evenly spread over the samples; and 0, and never.

    Wherever confidences crowd, thresholds do too: hundredths see next to nothing of an exit whose confidences all lie
    between 0.88 and 0.96. Each value is one sample's own confidence, so that `confidence >= threshold` is exact.
    """
    seen = np.sort(np.asarray(confidence).ravel())
    if not seen.size:  # a model without exits
        return np.array([0.0, NEVER])
    steps = np.arange(1, QUANTILES + 1)
    places = -(-steps * seen.size // QUANTILES) - 1  # the first sample that k of 100 are at or below
    inside = np.clip(seen[places].astype(np.float64), 0.0, 1.0)  # a softmax may stray above 1 by rounding
    return np.append(np.unique(np.append(inside, 0.0)), NEVER)
