"""Moving bits: scores by hand, swaps by rule."""

from __future__ import annotations

import numpy as np
import pytest

from maqee.apq.bits import BlockRisks, Scores, Swap, bit_costs, candidate_swaps, raise_bits, score_bits
from maqee.apq.cost import bops
from maqee.apq.figures import block_reach
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales
from maqee.errors import MaqeeError
from tests.apq.makers import make_trace

NAN = float("nan")
LITERAL = SearchOptions(swap="literal")


def scores(up: list[float], down: list[float], price: float = 0.0) -> Scores:
    """Scores without cost."""
    zero = np.zeros(len(up))
    return Scores(np.array(up), zero, np.array(down), zero, price)


def halving(depth: int, lowest: int = 3, widths: int = 4) -> BlockRisks:
    """Noise that falls to a quarter with every bit; later blocks are noisier."""
    noise = np.linspace(1, 2, depth)[:, None] * 4.0 ** -np.arange(widths)
    return BlockRisks(lowest, np.zeros_like(noise), noise)


def test_scores_by_hand() -> None:
    trace = make_trace(4, (1, 2), bits=(4, 3), confidence=[[0.9, 0.5], [0.9, 0.5], [0.1, 0.5], [0.9, 0.5]])
    risks = BlockRisks(3, np.array([[8.0, 4.0, 2.0, 1.0]] * 2), np.array([[0.8, 0.4, 0.2, 0.1]] * 2))
    scales = Scales(qid=8.0, sqnr=0.8, cost=1.0, tau=(0.05,))
    options = SearchOptions(alpha=0.5, lambda_inner=2.0)
    result = score_bits(trace, (0.8,), risks, scales, options)
    # Three of four samples leave after block 1. R is 0.5 (qid / 8 + sqnr / 0.8): 1, 0.5, 0.25, 0.125 at 3..6 bits.
    cost = 30 * 1024 + 1000 * 16 + 1600 + 50 * 16 + 0.25 * (1000 * 12 + 1600)
    assert result.risk_up == pytest.approx([0.25, 0.25 * 0.5])
    assert result.risk_down == pytest.approx([0.5, NAN], nan_ok=True)  # block 2 has the fewest bits already
    assert result.cost_up == pytest.approx([4000 / cost, 0.25 * 4000 / cost])
    assert result.plus == pytest.approx(result.risk_up - 2 * result.cost_up)
    assert result.minus[0] == pytest.approx(0.5 - 2 * 4000 / cost)


def test_costs_are_differences_of_the_cost_model() -> None:
    trace = make_trace(bits=(3, 4, 5, 6, 4, 4))
    thresholds = (0.9, 0.8, 0.95)
    reach = block_reach(trace, thresholds)
    before = bops(trace.parts, trace.bits, reach)
    result = score_bits(trace, thresholds, halving(6), Scales(tau=(0.05,) * 3), SearchOptions())
    for block in range(6):
        more = tuple(width + (index == block) for index, width in enumerate(trace.bits.block_weights))
        added = bops(trace.parts, trace.bits.with_weights(more), reach) - before
        assert added == pytest.approx(bit_costs(trace)[block] * reach[block])
        assert result.cost_up[block] == pytest.approx(added / before)


def test_a_block_that_nobody_reaches_is_worth_nothing() -> None:
    result = score_bits(make_trace(), (0.0, 0.0, 0.0), halving(6), Scales(tau=(0.05,) * 3), SearchOptions())
    assert result.plus[2:].tolist() == [0.0] * 4  # everybody leaves after block 2
    assert (result.minus[:2] > result.plus[:2]).all()


def test_limits_of_widths() -> None:
    trace = make_trace(bits=(3, 6, 4, 4, 4, 4))
    result = score_bits(trace, (0.9,) * 3, halving(6), Scales(tau=(0.05,) * 3), SearchOptions())
    assert np.isnan(result.minus).tolist() == [True, False, False, False, False, False]
    assert np.isnan(result.plus).tolist() == [False, True, False, False, False, False]


def test_the_best_pair_swaps() -> None:
    result = scores([1.0, 5.0, 3.0], [4.0, 6.0, 0.5])
    swaps = candidate_swaps((4, 4, 4), result, SearchOptions(), seen=())
    assert [(swap.donor, swap.receiver, swap.worth) for swap in swaps] == [(2, 1, 4.5), (0, 1, 1.0), (2, 0, 0.5)]
    assert swaps[0].apply((4, 4, 4)) == (4, 5, 3)
    assert candidate_swaps((4, 4, 4), result, SearchOptions(), seen={(4, 5, 3)})[0].donor == 0


def test_one_block_can_be_best_at_both_ends() -> None:
    """Donor and receiver differ: where one block would be both, the next best pair is taken."""
    swaps = candidate_swaps((4, 4), scores([9.0, 1.0], [0.0, 5.0]), SearchOptions(), seen=())
    assert [(swap.donor, swap.receiver) for swap in swaps] == [(1, 0), (0, 1)]


def test_no_swap_without_a_gain() -> None:
    assert candidate_swaps((4, 4), scores([1.0, 1.0], [4.0, 4.0]), SearchOptions(), seen=()) == []
    # The printed rule swaps here, for ever: it compares what one more bit gives, and not what one less takes.
    assert len(candidate_swaps((4, 4), scores([1.0, 1.1], [4.0, 4.0]), LITERAL, seen=())) == 1


@pytest.mark.parametrize(
    ("up", "down", "expected"),
    [
        ([1.0, 5.0, 3.0], [4.0, 6.0, 0.5], [(0, 1)]),
        ([NAN, 5.0, 3.0], [2.0, 6.0, 0.5], [(0, 1)]),  # at the most bits: Psi_minus stands in
        ([NAN, 5.0, 3.0], [4.0, 6.0, 0.5], [(2, 1)]),
        ([1.0, 5.0, 3.0], [NAN, 6.0, 0.5], [(2, 1)]),  # at the fewest bits: no donor
        ([2.0, 2.0, 2.0], [4.0, 6.0, 0.5], []),  # donor and receiver are the same block
        ([NAN, NAN], [1.0, 2.0], []),
        ([1.0, 2.0], [NAN, NAN], []),
    ],
)
def test_the_printed_rule(up: list[float], down: list[float], expected: list[tuple[int, int]]) -> None:
    swaps = candidate_swaps((4,) * len(up), scores(up, down), LITERAL, seen=())
    assert [(swap.donor, swap.receiver) for swap in swaps] == expected


def test_swaps_keep_the_total_and_the_limits() -> None:
    options = SearchOptions()
    bits: tuple[int, ...] = (4,) * 6
    seen = {bits}
    for _ in range(50):
        trace = make_trace(bits=bits)
        result = score_bits(trace, (0.9, 0.95, 0.9), halving(6), Scales(tau=(0.05,) * 3), options)
        swaps = candidate_swaps(bits, result, options, seen)
        if not swaps:
            break
        bits = swaps[0].apply(bits)
        seen.add(bits)
        assert sum(bits) == 24
        assert all(3 <= width <= 6 for width in bits)
    else:
        pytest.fail("the swaps do not end")


def test_raising() -> None:
    result = scores([1.0, NAN, 3.0, 2.0], [0.0] * 4)
    assert raise_bits((4, 6, 4, 4), result, 2) == (4, 6, 5, 5)
    assert raise_bits((4, 6, 4, 4), result, 0) == (4, 6, 4, 4)


@pytest.mark.parametrize(("drift", "noise"), [((2, 4), (2, 3)), ((4,), (4,))])
def test_wrong_shapes(drift: tuple[int, ...], noise: tuple[int, ...]) -> None:
    with pytest.raises(MaqeeError, match="one shape"):
        BlockRisks(3, np.zeros(drift), np.zeros(noise))


def test_a_swap_is_a_pair() -> None:
    assert Swap(0, 2, 1.0).apply((4, 4, 4)) == (3, 4, 5)
