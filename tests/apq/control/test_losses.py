"""Bounded losses, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from maqee.apq.control.losses import brier_losses
from maqee.errors import MaqeeError


def test_losses_by_hand() -> None:
    probabilities: list[list[list[float]]] = [[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]]
    # 0.49 + 0.64 + 0.01, 0.01 + 0.04 + 0.01; the worst possible score is 2.
    np.testing.assert_allclose(brier_losses(probabilities, [1, 0]), [[1.14, 0.06], [2.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[0.5, 0.5]], [0], r"\(samples, exits \+ 1, classes\)"),
        ([[[3.0, -1.0]]], [0], "apply the softmax"),
        ([[[math.nan, 1.0]]], [0], "apply the softmax"),
        ([[[0.5, 0.5]]], [0, 1], "one whole number"),
        ([[[0.5, 0.5]]], [0.5], "one whole number"),
        ([[[0.5, 0.5]]], [2], "from 0 to 1, but go from 2 to 2"),
    ],
)
def test_wrong_probabilities(probabilities: Any, labels: Any, message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        brier_losses(probabilities, labels)
