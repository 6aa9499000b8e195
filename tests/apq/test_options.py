"""Options of the search: what is refused, and the names of solvers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from maqee.apq.options import SearchOptions
from maqee.errors import MaqeeError
from maqee.policy import NEVER


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": 1.5},
        {"alpha": math.nan},
        {"lambda_outer": -1.0},
        {"lambda_outer": math.inf},
        {"lambda_inner": math.nan},
        {"reach": -0.1},
        {"start": 1.5},
        {"start": -0.1},
        {"tau": 0.9},
        {"tau": -0.1},
        {"bit_min": 7},
        {"bit_min": 0},
        {"max_swaps": -1},
        {"recovery_steps": -5},
    ],
    ids=str,
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    """The message begins with the name, so that a command line can put its own in its place."""
    with pytest.raises(MaqeeError, match=rf"^{next(iter(wrong))}( and \w+)?: "):
        SearchOptions(**wrong)


def test_exits_may_begin_closed() -> None:
    assert SearchOptions(start=NEVER).start == NEVER


def test_solvers() -> None:
    assert SearchOptions.for_solver("coordinate") == SearchOptions()
    exact = SearchOptions.for_solver("exact", lambda_outer=2.0, max_swaps=4)
    assert exact == SearchOptions(first_move="exact", last_search="exact", lambda_outer=2.0, max_swaps=4)
    with pytest.raises(MaqeeError, match=r"^solver: 'anneal' is not one of coordinate, exact"):
        SearchOptions.for_solver("anneal")
