"""What a search spends next."""

from __future__ import annotations

from maqee.apq import SearchOptions
from maqee.apq.ladder import FRONTIER_LADDER, LADDER, REFINED, next_rung

PLAIN, FRONTIER = SearchOptions(), SearchOptions(frontier=True)


def climb(worth: dict[float, float], options: SearchOptions) -> list[float]:
    """All rungs that are tried where `worth` says how good each is; between rungs nothing is better."""
    tried: list[float] = []
    best = 1.0
    while (share := next_rung(tried, best, options)) is not None:
        tried.append(share)
        if worth.get(share, -1.0) > worth.get(best, -1.0):
            best = share
    return tried


def test_up_as_long_as_it_is_better() -> None:
    tried = climb({1.0: 0.0, 1.2: 1.0, 1.45: 2.0, 1.8: 1.0}, PLAIN)
    assert tried[:5] == [1.0, 0.85, 1.2, 1.45, 1.8]
    assert set(tried[5:]).isdisjoint(LADDER)
    assert len(tried[5:]) == REFINED
    assert all(1.2 < share < 1.8 for share in tried[5:])


def test_down_as_long_as_it_is_better() -> None:
    assert climb({1.0: 0.0, 0.85: 1.0, 0.72: 2.0, 0.6: 3.0}, PLAIN)[:4] == [1.0, 0.85, 0.72, 0.6]


def test_halfway_between_the_best_and_the_farther_neighbour() -> None:
    assert next_rung([1.0, 0.85, 1.2], 1.0, PLAIN) == round((1.0 * 1.2) ** 0.5, 6)  # 1.2 is farther away than 0.85
    assert next_rung([1.0, 0.85, 1.2, 1.095445], 1.0, PLAIN) == round(0.85**0.5, 6)


def test_a_frontier_takes_every_rung() -> None:
    assert set(FRONTIER_LADDER) <= set(climb({1.0: 1.0}, FRONTIER))


def test_rungs_that_lie_close_together_end_it() -> None:
    assert next_rung([1.0, 1.01, 0.99], 1.0, FRONTIER) in FRONTIER_LADDER
    assert next_rung([*FRONTIER_LADDER, 1.01, 0.99], 1.0, FRONTIER) is None
