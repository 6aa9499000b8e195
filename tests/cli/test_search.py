"""`maqee search`: thresholds for a trace without the model, and what cannot be compared."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maqee
from maqee.apq import Plan, SearchOptions, Trace, exact_search, least_cost_problem, make_plan, policy_figures, search
from maqee.apq.control import control, offset_family
from maqee.evaluation.recorded_trace import open_trace
from maqee.runs import PLAN, TRACE
from maqee.tasks import tasks
from tests.apq.fake_model import EXITS, FakeModel
from tests.apq.makers import make_trace
from tests.helpers import by_block, invoke


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with a trace and its plan, as `maqee compress` leaves them."""
    options = SearchOptions(bits="weights", objective="paper", max_swaps=2, lambda_outer=2.0)
    result = search(FakeModel(samples=120), options)
    kinds = ("local-3x3", "local-1x1", "global-s2")
    result.trace.save(tmp_path / TRACE)
    make_plan(result, exit_kinds=kinds, method="repq", seed=0).save(tmp_path / PLAN)
    return tmp_path


def found(*arguments: str) -> Any:
    result = invoke("search", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_equal_request_finds_the_plan_again(run: Path) -> None:
    plan = Plan.load(run / PLAN)
    rows = {row["name"]: row for row in found(str(run), "--lambda-outer", "2")["rows"]}
    assert rows["plan"]["thresholds"] == list(plan.thresholds)
    assert rows["found"]["bops"] == pytest.approx(plan.got.bops)
    assert rows["found"]["accuracy"] == pytest.approx(plan.got.metric, abs=1e-6)
    assert rows["full depth"]["exit_mass"] == [0, 0, 0, 1]


def test_a_folder_and_its_file_are_the_same(run: Path) -> None:
    assert found(str(run)) == found(str(run / TRACE))


def test_budgets_are_kept(run: Path) -> None:
    trace = Trace.load(run / TRACE)
    full = found(str(run))["rows"][-1]
    cheap = found(str(run), "--max-bops", str(0.6 * full["bops"]))["rows"][0]
    assert cheap["bops"] <= 0.6 * full["bops"]
    wanted = full["accuracy"] - 0.05
    asked = ("--min-accuracy", str(wanted), "--target-on", "calibration")
    exact = found(str(run), *asked, "--solver", "exact")["rows"][0]
    assert exact["accuracy"] >= wanted
    best = exact_search(least_cost_problem(trace, wanted))
    assert exact["bops"] == pytest.approx(policy_figures(trace, best.thresholds).bops)


def test_a_frontier_rises(run: Path) -> None:
    result = found(str(run), "--frontier")
    costs = [row["bops"] for row in result["metrics"]]
    assert costs == sorted(costs, reverse=True)  # from the full metric down
    assert all(row["accuracy"] >= row["asked"] - 1e-6 for row in result["metrics"])
    assert len(result["metrics"]) + len(result["metrics_not_reached"]) == 11
    assert [row["lambda_outer"] for row in result["lambdas"]] == sorted(
        (row["lambda_outer"] for row in result["lambdas"]), reverse=True
    )
    text = invoke("search", str(run), "--frontier").output
    assert "least cost" in text
    assert "lambda" in text


def test_it_is_quick_and_says_what_it_is(run: Path) -> None:
    started = time.monotonic()
    output = invoke("search", str(run)).output
    assert time.monotonic() - started < 20
    assert "simulated, on calibration images" in output
    assert "other bits need the model" in output


def test_the_plan_that_is_written(run: Path) -> None:
    out = run / "new" / "plan.json"
    result = invoke("search", str(run), "--min-accuracy", "0.5", "--save-plan", str(out))
    assert result.exit_code == 0, result.output
    old, new = Plan.load(run / PLAN), Plan.load(out)
    assert new.bits == old.bits
    assert new.budget.min_metric == 0.5
    assert new.got == policy_figures(Trace.load(run / TRACE), new.thresholds)
    assert new.guarantee is None


def test_a_promise_does_not_come_along(run: Path) -> None:
    plan, out = Plan.load(run / PLAN), run / "new.json"
    trace = Trace.load(run / TRACE)
    losses = 1 - trace.correct.astype(np.float64)
    family = offset_family(plan.thresholds)
    promise = control(trace.confidence[:, :-1], losses, family, method="crc", loss="zero-one", epsilon=0.2)
    replace(plan, thresholds=promise.thresholds, guarantee=promise).save(run / PLAN)
    assert invoke("search", str(run), "--lambda-outer", "4", "--save-plan", str(out)).exit_code == 0
    assert Plan.load(run / PLAN).guarantee is not None
    assert Plan.load(out).guarantee is None


def test_other_tasks_have_scores(tmp_path: Path) -> None:
    make_trace(samples=60, task="segmentation").save(tmp_path / "masks.safetensors")
    result = found(str(tmp_path / "masks.safetensors"), "--min-accuracy", "0.5")
    assert result["metric"] == tasks["segmentation"].score_name  # the mean over images is not the mean IoU
    assert result["rows"][0][result["metric"]] >= 0.5


def test_a_trace_alone(tmp_path: Path) -> None:
    make_trace(samples=60).save(tmp_path / "lonely.safetensors")
    result = found(str(tmp_path / "lonely.safetensors"), "--lambda-outer", "1")
    assert [row["name"] for row in result["rows"]] == ["found", "full depth"]
    written = invoke("search", str(tmp_path / "lonely.safetensors"), "--save-plan", str(tmp_path / "plan.json"))
    assert written.exit_code == 2
    assert "(against)" in str(written.exception)
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "other"}, "their model differ"),
        ({"task": "segmentation"}, "their task differ"),
        ({"bits": (4, 4, 4, 4, 4, 4)}, "a trace is of one allocation"),
        ({"exit_blocks": (1, 3, 4, 6)}, "their exits differ"),
    ],
)
def test_what_cannot_be_compared(run: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    plan = replace(Plan.load(run / PLAN), bits=by_block((5, 4, 4, 4, 4, 3)), history=())
    plan.save(tmp_path / "other.json")
    facts: dict[str, Any] = {
        "bits": plan.bits,
        "exit_blocks": EXITS,
        "model": plan.checkpoint,
        "task": plan.task,
    } | changes
    make_trace(samples=30, **facts).save(tmp_path / "other.safetensors")
    result = invoke("search", str(tmp_path / "other.safetensors"), "--against", str(tmp_path / "other.json"))
    assert result.exit_code == 2
    assert message in str(result.exception)


def test_a_plan_to_compare_with(run: Path, tmp_path: Path) -> None:
    plan = Plan.load(run / PLAN)
    bold = replace(plan, thresholds=(0.0, 0.0, 0.0), history=())
    bold.save(tmp_path / "bold.json")
    rows = found(str(run), "--against", str(tmp_path / "bold.json"))["rows"]
    assert rows[1]["exit_mass"] == [1, 0, 0, 0]
    assert open_trace(run, tmp_path / "bold.json").plan == bold


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--min-accuracy", "0.5", "--max-bops", "1e9"), "give one of them"),
        (("--min-accuracy", "0.99999"), "cannot be met"),
        (("--max-bops", "1"), "cannot be met"),
        (("--solver", "best"), "not one of coordinate, exact"),
        (("--lambda-outer", "-1"), "lambda_outer"),
        (("--frontier", "--min-accuracy", "0.5"), "leave out"),
        (("--frontier", "--controlled", "0.5"), "leave out"),
        (("--frontier", "--save-plan", "plan.json"), "a plan holds one"),
        (("--controlled", "0.5", "--max-bops", "1e9"), "leave out"),
        (("--controlled", "1.5"), "from 0 to 1"),
        (("--controlled", "1"), "the most that one reaches is"),
        (("--against", "nowhere.json"), "does not exist"),
    ],
)
def test_mistakes(run: Path, arguments: tuple[str, ...], message: str) -> None:
    result = invoke("search", str(run), *arguments)
    assert result.exit_code == 2
    assert message in str(result.exception)


def test_controlled_performance(run: Path) -> None:
    """The paper's first protocol, by hand: every offset from -1.00 to 1.00, the cheapest that is good enough."""
    plan, trace = Plan.load(run / PLAN), Trace.load(run / TRACE)
    good = policy_figures(trace, plan.thresholds).metric - 0.03
    tried = []
    for step in range(-100, 101):
        sums = [2.0 if old == 2.0 else round(old + step / 100, 10) for old in plan.thresholds]
        figures = policy_figures(trace, [2.0 if value > 1 else max(0.0, value) for value in sums])
        tried += [figures] if figures.metric >= good else []
    best = min(tried, key=lambda figures: (figures.bops, -figures.metric))
    result = found(str(run), "--controlled", str(good))
    assert result["rows"][0]["bops"] == pytest.approx(best.bops)
    assert result["rows"][0]["accuracy"] == pytest.approx(best.metric, abs=1e-6)
    offset = result["controlled"]["offset"]
    pairs = zip(plan.thresholds, result["rows"][0]["thresholds"], strict=True)
    assert all(new in (0.0, 2.0) or new == pytest.approx(old + offset) for old, new in pairs)
    out = run / "moved.json"
    text = invoke("search", str(run), "--controlled", str(good), "--save-plan", str(out)).output
    assert "moved by one offset" in text
    assert Plan.load(out).thresholds == tuple(result["rows"][0]["thresholds"])
    assert Plan.load(out).budget.min_metric == good


def test_controlled_performance_needs_a_plan(tmp_path: Path) -> None:
    make_trace(samples=60).save(tmp_path / "lonely.safetensors")
    result = invoke("search", str(tmp_path / "lonely.safetensors"), "--controlled", "0.5")
    assert result.exit_code == 2
    assert "(against)" in str(result.exception)


def test_figures_are_written(run: Path) -> None:
    for more in ((), ("--frontier",)):
        assert invoke("search", str(run), *more, "--out", str(run / "figures.json")).exit_code == 0
        assert json.loads((run / "figures.json").read_text()) == found(str(run), *more)


def test_the_function_takes_values_as_well_as_files(run: Path) -> None:
    plan, trace = Plan.load(run / PLAN), Trace.load(run / TRACE)
    one, other = maqee.search(trace, against=plan, lambda_outer=2.0), maqee.search(run, lambda_outer=2.0)
    assert one.to_json() == other.to_json()
    assert one.revised_plan().thresholds == one.found.thresholds
    assert isinstance(maqee.search(run, frontier=True), maqee.TraceFrontier)


def test_no_trace(tmp_path: Path) -> None:
    assert invoke("search", str(tmp_path / "none")).exit_code == 2
    assert invoke("search", str(tmp_path)).exit_code == 2
