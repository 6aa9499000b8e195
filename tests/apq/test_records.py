"""Which of two policies is better."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from maqee.apq._stored import from_json
from maqee.apq.records import Expected, Figures, FoldOutcome, Found, Position, better
from maqee.errors import MaqeeError
from tests.helpers import by_block

OUTCOME = FoldOutcome((0.5, 2.0), 0.0, 1.0, 3, 2.0, 2.0, 30.0, 300.0, 9.0)


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
    place = Position(by_block((4,)), (), 0.0, 0.0, Figures(0.5, 0.5, 1.0, 1.0, (1.0,), 4.0, 4.0))
    mine, theirs = (replace(place, excess=excess, objective=objective) for excess, objective in (one, other))
    assert mine.beats(theirs) is expected
    mine_there, theirs_there = (
        replace(OUTCOME, excess=excess, objective=objective) for excess, objective in (one, other)
    )
    assert mine_there.beats(theirs_there) is expected


def test_outcomes_are_stored() -> None:
    assert from_json(FoldOutcome, asdict(OUTCOME), "file") == OUTCOME
    with pytest.raises(MaqeeError, match="file: more"):
        from_json(FoldOutcome, {**asdict(OUTCOME), "more": 1}, "file")


def test_an_expectation_without_errors_is_read() -> None:
    old = {"metric": 0.5, "bops": 1.0, "mean_exit": 2.0, "folds": 5}
    assert from_json(Expected, old, "file") == Expected(0.5, 1.0, 2.0, 5, None, None)
