"""Which of two policies is better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from maqee.apq.records import Figures, Found, Position, better


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0.0, 5.0), (0.1, 1.0), True),  # the limit comes first
        ((0.1, 1.0), (0.0, 5.0), False),
        ((0.1, 1.0), (0.1, 2.0), True),
        ((0.0, 1.0), (0.0, 1.0), False),
        ((0.0, 1.0), (0.0, 1.0 + 1e-13), False),  # rounding is no gain
    ],
)
def test_better(one: tuple[float, float], other: tuple[float, float], expected: bool) -> None:
    assert better(Found((), *one), Found((), *other)) is expected
    place = Position((4,), (), 0.0, 0.0, Figures(0.5, 0.5, 1.0, 1.0, (1.0,), 4.0, 4.0))
    mine, theirs = (replace(place, excess=excess, objective=objective) for excess, objective in (one, other))
    assert mine.beats(theirs) is expected
