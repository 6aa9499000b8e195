"""The knapsack against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq.bits import BlockRisks
from maqee.apq.cost import bops
from maqee.apq.exact_bits import allocate, allocate_bits
from maqee.apq.figures import block_reach, policy_figures
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales
from maqee.errors import MaqeeError
from maqee.policy import NEVER
from tests.apq.makers import make_trace

SCALES = Scales(tau=(0.05,) * 3)
THRESHOLDS = (0.9, 0.8, 0.95)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_brute_force(seed: int, blocks: int, choices: int, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=(blocks, choices))
    cost = rng.integers(1, 6, (blocks, choices)).astype(float) if whole else rng.random((blocks, choices))
    risk[rng.random((blocks, choices)) < 0.2] = np.nan
    risk[:, 0] = rng.normal(size=blocks)
    budget = float(rng.uniform(0.2, 1) * cost.max(axis=1).sum())
    rows = np.arange(blocks)
    tried = [
        risk[rows, columns].sum()
        for columns in map(list, product(range(choices), repeat=blocks))
        if cost[rows, columns].sum() <= budget and not np.isnan(risk[rows, columns]).any()
    ]
    if not tried:
        with pytest.raises(MaqeeError, match="the least possible is"):
            allocate(risk, cost, budget)
        return
    found = list(allocate(risk, cost, budget))
    assert cost[rows, found].sum() <= budget + 1e-9
    assert risk[rows, found].sum() == pytest.approx(min(tried), abs=1e-12)


def _risks(seed: int = 0) -> BlockRisks:
    noise = np.random.default_rng(seed).exponential(1, (6, 1)) * 4.0 ** -np.arange(4)
    return BlockRisks(3, 0.3 * noise, noise)


def _worth(bits: tuple[int, ...], options: SearchOptions, thresholds: tuple[float, ...] = THRESHOLDS) -> float:
    """What is minimised, from the cost model and the definition of R."""
    trace = make_trace()
    reach = block_reach(trace, thresholds)
    risk = _risks().at(bits, 0, SCALES, options)
    share = bops(trace.parts, trace.bits.with_weights(bits), reach) / bops(trace.parts, trace.bits, reach)
    return float((reach * risk).sum() + options.lambda_inner * share)


def test_total_bits() -> None:
    options = SearchOptions(lambda_inner=0.1)
    found = allocate_bits(make_trace(), THRESHOLDS, _risks(), SCALES, options, total_bits=24)
    every = [bits for bits in product(range(3, 7), repeat=6) if sum(bits) <= 24]
    assert sum(found) <= 24
    assert _worth(found, options) == pytest.approx(min(_worth(bits, options) for bits in every), abs=1e-9)


@pytest.mark.parametrize("thresholds", [THRESHOLDS, (NEVER, *THRESHOLDS[1:])], ids=["all open", "one closed"])
def test_a_maximum_of_bops(thresholds: tuple[float, ...]) -> None:
    options, trace = SearchOptions(lambda_inner=0.0), make_trace()
    most = 0.97 * policy_figures(trace, thresholds).bops
    found = allocate_bits(trace, thresholds, _risks(), SCALES, options, max_bops=most)
    cost = {
        bits: policy_figures(trace.at_bits(trace.bits.with_weights(bits)), thresholds).bops
        for bits in product(range(3, 7), repeat=6)
    }
    assert cost[found] <= most * (1 + 1e-9)
    best = min(_worth(bits, options, thresholds) for bits in cost if cost[bits] <= most)
    assert _worth(found, options, thresholds) == pytest.approx(best, abs=1e-9)


def test_budgets_that_cannot_be_met() -> None:
    trace = make_trace()
    with pytest.raises(MaqeeError, match="budget of 17 cannot be met: the least possible is 18"):
        allocate_bits(trace, THRESHOLDS, _risks(), SCALES, SearchOptions(), total_bits=17)
    with pytest.raises(MaqeeError, match="10 BOPs cannot be met under this policy: the fewest are"):
        allocate_bits(trace, THRESHOLDS, _risks(), SCALES, SearchOptions(), max_bops=10)
    with pytest.raises(MaqeeError, match="either"):
        allocate_bits(trace, THRESHOLDS, _risks(), SCALES, SearchOptions())
    with pytest.raises(MaqeeError, match="at least one width"):
        allocate(np.full((1, 2), np.nan), np.zeros((1, 2)), 1.0)
    with pytest.raises(MaqeeError, match="same shape"):
        allocate(np.zeros((1, 2)), np.zeros((2, 1)), 1.0)


def test_many_blocks() -> None:
    """Twenty-four blocks with costs that share no unit."""
    rng = np.random.default_rng(1)
    widths = np.arange(3, 7)
    reach = np.linspace(1, 0.3, 24) * rng.uniform(0.8, 1.2, 24)
    risk = (reach * rng.exponential(1, 24))[:, None] * 4.0 ** (3 - widths)
    cost = reach[:, None] * widths
    found = list(allocate(risk, cost, 4 * reach.sum()))
    rows = np.arange(24)
    assert cost[rows, found].sum() <= 4 * reach.sum() + 1e-9
    assert risk[rows, found].sum() < risk[:, 1].sum()  # better than 4 bits everywhere
