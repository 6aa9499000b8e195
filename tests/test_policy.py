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


def test_a_threshold_is_rounded_like_the_executed_policy() -> None:
    import torch

    edge = np.float32(0.7)  # a little less than the number 0.7
    confidence = np.array([[np.nextafter(edge, np.float32(0))], [edge], [np.nextafter(edge, np.float32(1))]])
    executed = torch.from_numpy(confidence[:, 0]) < Policy((0.7,)).thresholds[0]  # as `EarlyExitModel.run` compares
    assert take_exits(confidence, (0.7,)).tolist() == executed.int().tolist() == [1, 0, 0]
