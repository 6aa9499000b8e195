"""Standard configuration and controlled performance: chosen on calibration images, sorted out afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from maqee.apq import policy_figures
from maqee.errors import MaqeeError
from maqee.evaluation.protocols import both_protocols
from maqee.evaluation.results import PolicyFigures
from tests.apq.makers import make_trace


def figures(bops: float) -> PolicyFigures:
    return PolicyFigures(
        thresholds=(), metrics={}, mean_exit=1, exit_mass=(), macs=1, bops=bops, share_of_full_precision=1
    )


def test_the_cheapest_offset_that_reaches_the_target() -> None:
    trace = make_trace()
    own = (0.8,) * trace.exits
    both = both_protocols(trace, own, trace.full_metric)
    assert both.standard.thresholds == own
    assert both.controlled is not None
    chosen = policy_figures(trace, both.controlled.thresholds)
    assert chosen.metric >= trace.full_metric
    offsets = np.unique(np.diff([value for value in both.controlled.thresholds if value <= 1]).round(9))
    assert set(offsets) <= {0.0}  # all moved together
    for step in range(-100, 101):
        moved = policy_figures(trace, tuple(min(max(round(0.8 + step / 100, 10), 0.0), 2.0) for _ in own))
        assert moved.metric < trace.full_metric or moved.bops >= chosen.bops - 1e-6
    standard, controlled = both.sort_out([figures(1), figures(2)])
    assert (standard.bops, standard.calibration_target) == (1, None)
    assert controlled is not None
    assert (controlled.bops, controlled.calibration_target) == (2, round(trace.full_metric, 6))


def test_a_target_that_is_out_of_reach() -> None:
    trace = make_trace()
    both = both_protocols(trace, (0.8,) * trace.exits, 1.0)
    assert both.controlled is None
    assert len(both.policies) == 1
    assert both.sort_out([figures(1)])[1] is None
    with pytest.raises(MaqeeError, match=r"controlled: 1\.5 must be from 0 to 1"):
        both_protocols(trace, (0.8,) * trace.exits, 1.5)
