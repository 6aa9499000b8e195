"""A policy in numbers, worked out by hand."""

from __future__ import annotations

import pytest

from maqee.apq.figures import block_reach, exit_costs, policy_figures
from tests.apq.makers import four_samples, make_trace


def test_figures() -> None:
    figures = policy_figures(four_samples(correct=[[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]]), (0.8, 0.8))
    assert figures.exit_mass == (0.5, 0.25, 0.25)
    assert (figures.metric, figures.loss) == (0.75, (1 + 0.5 + 1 + 0) / 4)
    assert figures.mean_exit == 0.5 * 1 + 0.25 * 3 + 0.25 * 4
    costs = exit_costs(four_samples())
    assert costs.tolist() == [30720 + 17600 + 800, 30720 + 3 * 17600 + 1600, 30720 + 4 * 17600 + 1600]
    assert figures.bops == pytest.approx((costs * [0.5, 0.25, 0.25]).sum())
    assert block_reach(four_samples(), (0.8, 0.8)).tolist() == [1.0, 0.5, 0.5, 0.25]


def test_the_cost_of_a_policy_agrees_with_the_cost_model() -> None:
    from maqee.apq.cost import bops

    trace, thresholds = make_trace(), (0.9, 0.85, 0.95)
    reach = block_reach(trace, thresholds)
    assert policy_figures(trace, thresholds).bops == pytest.approx(bops(trace.parts, trace.bits, reach), rel=1e-12)
