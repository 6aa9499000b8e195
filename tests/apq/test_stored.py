"""Plans and searches from before a key existed mean what they meant, and stay the same text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from maqee.apq import Budget, Expected, Plan, Scales, SearchOptions
from maqee.apq._stored import check_format, with_what_was_meant, without_what_was_meant
from maqee.runs import PLAN
from tests.helpers import FIXTURES


def test_an_old_plan_means_what_it_meant() -> None:
    plan = Plan.load(FIXTURES / "compressed_by_0.1.0" / PLAN)
    assert (plan.budget.target_on, plan.budget.drop_from) == ("calibration", "float")
    assert (plan.options.objective, plan.options.candidates, plan.options.bsr_scale) == ("paper", "grid", "none")
    assert plan.scales.bsr == 1.0
    assert plan.expected is not None
    assert (plan.expected.metric_error, plan.expected.bops_error) == (None, None)


def test_what_is_new_is_stored() -> None:
    values: dict[str, Any] = {
        "budget": asdict(Budget(max_drop=0.1)),
        "options": asdict(SearchOptions(bsr_scale="fixed")),
        "scales": asdict(Scales(bsr=0.5)),
        "expected": asdict(Expected(0.5, 1.0, 2.0, 5, 0.25, 0.125)),
        "history": [],
    }
    stored = without_what_was_meant(values)
    assert stored["budget"]["target_on"] == "expected"
    assert "drop_from" not in stored["budget"]
    assert stored["options"]["objective"] == "direct"
    assert stored["expected"]["metric_error"] == 0.25
    assert with_what_was_meant(stored) == values
    assert check_format({"format": "maqee-plan", "version": 1, **stored}, "plan", 1, "file") == values


def test_what_is_no_section_is_left_alone() -> None:
    for values in ({}, {"expected": None}, {"budget": 3, "other": {"bsr": 1.0}}):
        assert with_what_was_meant(dict(values)) == without_what_was_meant(dict(values)) == values
