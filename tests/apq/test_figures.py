"""A policy in numbers, worked out by hand."""

from __future__ import annotations

import pytest

from maqee.apq.cost import bops, closed_blocks
from maqee.apq.figures import block_reach, exit_costs, head_costs, lone_exit_costs, policy_bops, policy_figures
from maqee.policy import NEVER
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


def test_closed_exits_are_not_there() -> None:
    """A head is 800 BOPs. The first exit closed: one sample fails at the second and goes on, the others leave there."""
    trace = four_samples()
    first, second, full = (30720 + 17600 + 800, 30720 + 3 * 17600 + 1600, 30720 + 4 * 17600 + 1600)
    assert head_costs(trace).tolist() == [800, 800]
    assert lone_exit_costs(trace).tolist() == [first, second - 800, full - 1600]
    assert policy_bops(trace, (NEVER, 0.8)).tolist() == [first, second - 800, full - 800]
    assert policy_figures(trace, (NEVER, 0.8)).bops == 0.5 * (second - 800) + 0.5 * (full - 800)
    assert policy_figures(trace, (0.8, NEVER)).bops == 0.5 * first + 0.5 * (full - 800)
    assert policy_figures(trace, (NEVER, NEVER)).bops == 30720 + 4 * 17600
    # Nobody is as sure as that either, but the heads must run to tell.
    assert policy_figures(trace, (1.0, 1.0)).bops == full


def test_heads_that_were_not_timed_save_no_time() -> None:
    timed = four_samples(exit_ms=(1.0, 2.0, 4.0))
    assert head_costs(timed).tolist() == [0, 0]
    assert policy_figures(timed, (NEVER, NEVER)).ms == 4.0
    assert policy_figures(timed, (NEVER, NEVER)).bops == 30720 + 4 * 17600


@pytest.mark.parametrize("thresholds", [(0.9, 0.85, 0.95), (0.9, NEVER, 0.95), (NEVER, 0.85, NEVER), (NEVER,) * 3])
def test_the_cost_of_a_policy_agrees_with_the_cost_model(thresholds: tuple[float, ...]) -> None:
    trace = make_trace()
    reach, closed = block_reach(trace, thresholds), closed_blocks(thresholds, trace.exit_blocks)
    expected = bops(trace.parts, trace.bits, reach, closed)
    assert policy_figures(trace, thresholds).bops == pytest.approx(expected, rel=1e-12)
