"""Greedy mixed precision: the order of its choices, and its limits."""

from __future__ import annotations

import numpy as np
import pytest

from maqee.apq.bits import BlockRisks
from maqee.apq.greedy import greedy_bits
from maqee.apq.options import SearchOptions
from maqee.errors import MaqeeError
from maqee.parts import Part
from tests.apq.makers import make_trace


def _risks(decibels: list[list[float]]) -> BlockRisks:
    noise = 10 ** (np.array(decibels) / 10)
    return BlockRisks(3, np.zeros_like(noise), noise)


def test_the_cheapest_decibel_goes_first() -> None:
    # Levels at 3, 4, 5, 6 bits: block 1 loses 1, 5, 9 dB on the way down, block 2 always 4 dB.
    risks = _risks([[-5, -14, -19, -20], [-8, -12, -16, -20]])
    trace = make_trace(5, (1, 2))
    found = [greedy_bits(trace, risks, total, SearchOptions()) for total in range(12, 5, -1)]
    assert found == [(6, 6), (5, 6), (5, 5), (5, 4), (5, 3), (4, 3), (3, 3)]


def test_costly_blocks_give_first() -> None:
    parts = (Part("block 1", "linear", 100, 1), Part("block 2", "linear", 1000, 2))
    risks = _risks([[-5, -14, -19, -20], [-8, -12, -16, -20]])
    assert greedy_bits(make_trace(5, (1, 2), parts=parts), risks, 9, SearchOptions()) == (6, 3)


def test_the_sum_and_the_limits_are_kept() -> None:
    noise = np.random.default_rng(0).exponential(1, (6, 1)) * 4.0 ** -np.arange(4)
    for total in range(18, 37):
        bits = greedy_bits(make_trace(5), BlockRisks(3, noise, noise), total, SearchOptions())
        assert sum(bits) == total
        assert all(3 <= width <= 6 for width in bits)


def test_errors() -> None:
    risks = _risks([[-5, -14, -19, -20], [-8, -12, -16, -20]])
    trace = make_trace(5, (1, 2))
    with pytest.raises(MaqeeError, match="the nearest that can is 6"):
        greedy_bits(trace, risks, 5, SearchOptions())
    with pytest.raises(MaqeeError, match="all widths from 2 to 6"):
        greedy_bits(trace, risks, 8, SearchOptions(bit_min=2))
