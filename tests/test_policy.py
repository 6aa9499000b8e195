"""Who leaves where: one rule, for arrays and for the model that really stops."""

from __future__ import annotations

import numpy as np
import pytest

from maqee.errors import MaqeeError
from maqee.policy import NEVER, Policy, take_exits
from tests.apq.makers import CONFIDENCE


def test_who_leaves_where() -> None:
    confidence = CONFIDENCE[:, :2].astype(np.float32)
    assert take_exits(confidence, (0.8, 0.8)).tolist() == [0, 1, 2, 0]  # at least the threshold, not more than it
    assert take_exits(confidence, (NEVER, NEVER)).tolist() == [2, 2, 2, 2]
    assert take_exits(confidence, (0.0, 0.0)).tolist() == [0, 0, 0, 0]
    with pytest.raises(MaqeeError, match="3 thresholds for 2 exits"):
        take_exits(confidence, (0.1, 0.2, 0.3))


def test_closed_is_above_one_and_not_what_nobody_reaches() -> None:
    policy = Policy((1.0, NEVER, 0.0, 1.0 + 1e-9))
    assert (policy.open, policy.closed) == ((0, 2), (1, 3))
    assert Policy.never(2).closed == (0, 1)
    # A softmax may stray above 1 by rounding, and the threshold may be rounded to 1: closed is closed.
    confidence = np.array([[1.0, 1.0], [1.0000001, 1.0000001]], dtype=np.float32)
    assert take_exits(confidence, (1.0 + 1e-9, 1.0)).tolist() == [1, 1]
    assert take_exits(confidence, np.array([[1.0, 1.0], [NEVER, NEVER]])).tolist() == [[0, 2], [0, 2]]


def test_a_threshold_is_rounded_like_the_executed_policy() -> None:
    import torch

    edge = np.float32(0.7)  # a little less than the number 0.7
    confidence = np.array([[np.nextafter(edge, np.float32(0))], [edge], [np.nextafter(edge, np.float32(1))]])
    executed = torch.from_numpy(confidence[:, 0]) < Policy((0.7,)).thresholds[0]  # as `EarlyExitModel.run` compares
    assert take_exits(confidence, (0.7,)).tolist() == executed.int().tolist() == [1, 0, 0]
