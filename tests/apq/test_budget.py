"""Budgets: what they come to, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest

from maqee.apq.budget import Budget
from maqee.apq.options import SearchOptions
from maqee.apq.records import Figures
from maqee.errors import MaqeeError

FIGURES = Figures(0.75, 0.5, 2000.0, 3.0, (0.5, 0.5), 4.0, 4.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_bops": 1.0, "min_metric": 0.5}, "max_bops and min_metric: give one of them"),
        ({"max_drop": 0.1, "min_metric": 0.5}, "min_metric and max_drop: give one of them"),
        ({"max_drop": 2.0}, "max_drop: 2.0 must be from 0 to 1"),
        ({"max_drop": -0.1}, "max_drop: -0.1 must be from 0 to 1"),
        ({"min_metric": 50.0}, "min_metric: 50.0 must be from 0 to 1"),
        ({"min_metric": math.nan}, "min_metric: nan must be from 0 to 1"),
        ({"max_bops": -1.0}, "max_bops: -1.0 must be a number above 0"),
        ({"max_bops": math.inf}, "max_bops: inf must be a number above 0"),
    ],
)
def test_wrong_budgets(wrong: dict[str, Any], message: str) -> None:
    """The message begins with the name, so that a command line can put its own in its place."""
    with pytest.raises(MaqeeError, match=f"^{message}"):
        Budget(**wrong)


def test_total_bits() -> None:
    options = SearchOptions()
    assert Budget().total_bits(6, options) == 24
    assert Budget(average_bits=4.5).total_bits(6, options) == 27
    assert Budget(average_bits=3.3).total_bits(12, options) == 39  # 39.6: never more than asked for
    for wrong, nearest in ((2.0, 3), (7.0, 6), (math.inf, 6), (math.nan, 3)):
        with pytest.raises(MaqeeError, match=rf"^average_bits: {wrong} .* the nearest that can is {nearest}\."):
            Budget(average_bits=wrong).total_bits(6, options)


def test_the_metric_that_is_needed() -> None:
    assert Budget().needed_metric(0.9) is None
    assert Budget(max_bops=1.0).needed_metric(0.9) is None
    assert Budget(min_metric=0.8).needed_metric(0.9) == 0.8
    assert Budget(max_drop=0.25).needed_metric(0.75) == 0.5
    assert Budget(max_drop=1.0).needed_metric(0.9) == 0
    asked = [Budget(), Budget(min_metric=0.0), Budget(max_drop=0.0)]
    assert [budget.asks_for_metric for budget in asked] == [False, True, True]


def test_a_drop_from_what_the_quantized_model_can_reach() -> None:
    budget = Budget(max_drop=0.25, drop_from="quantized")
    assert budget.needed_metric(0.9, 0.75) == 0.5
    assert budget.needed_metric(0.9, 0.1) == 0
    with pytest.raises(MaqeeError, match=r"^drop_from: .* give quantized_metric too"):
        budget.needed_metric(0.9)
    assert Budget(max_drop=0.25).needed_metric(0.75, 0.1) == 0.5


def test_a_drop_comes_to_a_metric() -> None:
    budget = Budget(max_drop=0.25, drop_from="quantized", average_bits=5, target_on="calibration")
    assert budget.resolved(0.9, 0.75) == Budget(
        min_metric=0.5, drop_from="quantized", average_bits=5, target_on="calibration"
    )
    assert Budget(max_drop=0.25).resolved(0.75) == Budget(min_metric=0.5)
    for other in (Budget(), Budget(max_bops=1.0), Budget(min_metric=0.5)):
        assert other.resolved(0.9) == other


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(max_drop=0.05), r"max_drop: 0.05 cannot be met at 4 bits on average: the nearest found is 0.07"),
        (Budget(min_metric=0.77), r"min_metric: 0.77 cannot be met at 4 bits on average: the nearest found is 0.75"),
        (
            Budget(min_metric=0.77, target_on="calibration"),
            r"min_metric: 0.77 cannot be met .* is 0.7500; allow more bits or recovery\.",
        ),
        (Budget(min_metric=0.79), r"min_metric: 0.79 cannot be met .* is 0.7700, expected of new images; allow more"),
        (
            Budget(max_drop=0.05, drop_from="quantized"),
            r"max_drop: 0.05 below what the quantized model can reach cannot be met .* is 0.0700, expected of new",
        ),
        (Budget(max_bops=1000.0), r"max_bops: 1000 BOPs cannot be met .* the nearest found is 2000\."),
    ],
)
def test_what_was_not_met(budget: Budget, message: str) -> None:
    with pytest.raises(MaqeeError, match=f"^{message}"):
        budget.check_met(0.02, FIGURES)
    budget.check_met(0.0, FIGURES)
