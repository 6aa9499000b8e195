"""Risk control: losses, families of policies and their gaps, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from maqee.apq.control.family import offset_family, policy_gaps, shared_family
from maqee.apq.control.losses import brier_losses, zero_one_losses
from maqee.errors import MaqeeError
from maqee.policy import NEVER, take_exits


def test_losses_by_hand() -> None:
    probabilities: list[list[list[float]]] = [[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]]
    assert zero_one_losses(probabilities, [1, 0]).tolist() == [[1, 0], [1, 0]]
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
    for losses in (zero_one_losses, brier_losses):
        with pytest.raises(MaqeeError, match=message):
            losses(probabilities, labels)


def test_families_by_hand() -> None:
    assert shared_family(2, steps=2).tolist() == [[NEVER, NEVER], [1, 1], [0.5, 0.5], [0, 0]]
    # Offsets 1, 0.5, 0, -0.5, -1; the second exit is switched off by the plan and stays off.
    assert offset_family((0.75, NEVER, 0.25), steps=2).tolist() == [
        [NEVER, NEVER, NEVER],
        [1, NEVER, 1],
        [1, NEVER, 0.75],
        [0.75, NEVER, 0.25],
        [0.25, NEVER, 0],
        [0, NEVER, 0],
    ]


def test_plan_itself_is_a_member() -> None:
    plan = (0.83, 0.71, 0.6001)
    assert list(plan) in offset_family(plan).tolist()


def test_exits_and_gaps_by_hand() -> None:
    confidence = np.array([[0.9, 0.2], [0.5, 0.8], [0.1, 1.0]])
    family = np.array([[NEVER, NEVER], [1.0, 1.0], [0.8, 0.8], [0.0, 0.0]])
    assert take_exits(confidence, family).tolist() == [[2, 2, 0, 0], [2, 2, 1, 0], [2, 1, 1, 0]]
    assert take_exits(confidence, [0.9, 0.8]).tolist() == [0, 1, 1]
    losses = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    assert policy_gaps(confidence, losses, family).tolist() == [[0, 0, 1, 1], [0, 0, 0, -1], [0, -1, -1, 0]]
