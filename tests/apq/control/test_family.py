"""Families of policies and their gaps, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maqee.apq.control.family import offset_family, policy_gaps
from maqee.errors import MaqeeError
from maqee.policy import NEVER, take_exits


def test_families_by_hand() -> None:
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


def test_wrong_families() -> None:
    with pytest.raises(MaqeeError, match="at least 1, not 0"):
        offset_family((0.5,), steps=0)
    for thresholds in ((0.5, math.nan), (), (-0.1,)):
        with pytest.raises(MaqeeError, match="one number from 0 up"):
            offset_family(thresholds)
