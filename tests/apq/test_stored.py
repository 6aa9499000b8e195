"""Plans from before a key existed mean what they meant."""

from __future__ import annotations

from typing import Any

import pytest

from maqee.apq import Plan
from maqee.apq._older import current_plan, current_trace
from maqee.apq._stored import check_format
from maqee.errors import MaqeeError
from maqee.runs import PLAN
from tests.helpers import FIXTURES

OTHER = {"activations": 5, "patch": [32, 32], "classifier": [32, 32], "head": [4, 5], "merge": [4, 5]}
BLOCKS = [[[3, 5], [5, 5], [3, 5], [3, 5], [3, 5]], [[6, 5], [5, 5], [6, 5], [6, 5], [6, 5]]]
SETTINGS = {"blocks": BLOCKS, "patch": [32, 32], "classifier": [32, 32], "head": [4, 5], "merge": [4, 5]}


def test_an_old_plan_means_what_it_meant() -> None:
    plan = Plan.load(FIXTURES / "compressed_by_0.1.0" / PLAN)
    assert (plan.budget.target_on, plan.budget.drop_from) == ("calibration", "float")
    assert (plan.options.objective, plan.options.candidates, plan.options.bsr_scale) == ("paper", "grid", "none")
    assert plan.scales.bsr == 1.0
    assert plan.expected is not None
    assert (plan.expected.metric_error, plan.expected.bops_error) == (None, None)


def test_what_an_old_plan_says_wins() -> None:
    old = {
        "bits": [3, 6],
        "other_bits": OTHER,
        "budget": {"target_on": "expected"},
        "options": {"objective": "direct"},
        "history": [{"kind": "start", "position": {"bits": [6, 3], "excess": 0.0}}],
    }
    new = current_plan(old)
    assert new["bits"] == SETTINGS
    assert "other_bits" not in new
    assert new["budget"]["target_on"] == "expected"
    assert new["options"]["objective"] == "direct"
    assert new["options"]["candidates"] == "grid"
    assert new["history"][0]["position"]["bits"]["blocks"] == BLOCKS[::-1]
    assert new["history"][0]["position"]["excess"] == 0.0
    assert old["history"][0]["position"]["bits"] == [6, 3]  # type: ignore[index]


def test_a_plan_from_before_scores_were_smoothed() -> None:
    assert current_plan({"options": {"bits": "both"}}) == {"options": {"bits": "both", "scores": "counted"}}


def test_an_old_trace() -> None:
    assert current_trace({"bits": {"weights": [3, 6], **OTHER}, "task": "x"}) == {"bits": SETTINGS, "task": "x"}


@pytest.mark.parametrize(
    "values", [{}, {"bits": SETTINGS}, {"other_bits": 3}, {"bits": [4], "options": {"scores": "smoothed"}}], ids=str
)
def test_what_is_not_old_is_left_alone(values: dict[str, Any]) -> None:
    assert current_plan(dict(values)) == values


@pytest.mark.parametrize("bits", [None, 4, "4", [4, 4], {}, SETTINGS], ids=str)
def test_traces_that_are_not_old_are_left_alone(bits: Any) -> None:
    assert current_trace({"bits": bits}) == {"bits": bits}


def test_damaged_old_plans_are_for_the_reader_to_complain_about() -> None:
    for step in (None, 3, {}, {"position": 4}):
        assert current_plan({"bits": [4], "other_bits": OTHER, "history": [step]})["history"] == [step]
    assert current_plan({"bits": "x", "other_bits": {}, "history": 3}) == {"bits": "x", "history": 3}


@pytest.mark.parametrize(("version", "oldest", "fine"), [(1, 1, True), (2, 1, True), (1, 0, False), (3, 1, False)])
def test_versions_that_are_read(version: int, oldest: int, fine: bool) -> None:
    values = {"format": "maqee-plan", "version": version, "key": 1}
    if fine:
        assert check_format(values, "plan", 2, "file", oldest) == {"key": 1}
    else:
        with pytest.raises(MaqeeError, match=f"reads version 2 of a plan, the file has {version}"):
            check_format(values, "plan", 2, "file", oldest)
