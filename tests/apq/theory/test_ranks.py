"""Theorem 3: by hand, and on random sensitivities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq.theory.ranks import rank_inversions
from maqee.errors import MaqeeError


def test_rank_inversions_by_hand() -> None:
    # u S = 2, 2.4, 1.2: block 3 is statically first but weighted last, block 2 is second and weighted first.
    found = rank_inversions([2.0, 3.0, 4.0], [1.0, 0.8, 0.3])
    assert found.pairs == ((3, 1), (3, 2))
    assert found.share == pytest.approx(2 / 3)
    # One bit: 1.2 instead of 2.4; two: 1.2 + 2.4 instead of 4.4; three: all.
    assert found.shortfall == pytest.approx((0.5, 0.8 / 4.4, 0.0))


def test_an_inversion_need_not_matter() -> None:
    found = rank_inversions([9.0, 1.0, 2.0], [1.0, 1.0, 0.1])
    assert found.pairs == ((3, 2),)
    assert found.shortfall[0] == 0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), min_size=1, max_size=8))
def test_only_deeper_layers_can_lose_their_rank(rows: list[tuple[float, float]]) -> None:
    static = [row[0] for row in rows]
    reach = sorted((row[1] for row in rows), reverse=True)
    found = rank_inversions(static, reach)
    assert all(i > j for i, j in found.pairs)
    assert all(0 <= value <= 1 for value in found.shortfall)
    assert found.shortfall[-1] == pytest.approx(0, abs=1e-9)
    if not found.pairs:
        assert max(found.shortfall) == pytest.approx(0, abs=1e-9)
    assert rank_inversions(static, [1.0] * len(static)).pairs == ()


def test_wrong_utilizations() -> None:
    with pytest.raises(MaqeeError, match="from 0 to 1"):
        rank_inversions([1.0], [1.5])
