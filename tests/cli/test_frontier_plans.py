"""`maqee eval RUN --frontier`: every plan on images that are read once, as if each was evaluated alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import maqee
from maqee.apq import Plan
from maqee.data import ImageSet, open_split
from maqee.evaluation.frontier_plans import evaluate_frontier
from maqee.runs import frontier_folders
from tests.helpers import FIXTURES, invoke

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("frontier") / "run"
    result = invoke(
        "compress", str(FIXTURES / "digits"), "--data", "digits", "--out", str(out), "--device", "cpu",
        "--method", "rtn", "--samples", "60", "--fit-images", "8", "--set", "search.frontier=true",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return out


def test_rows_are_those_of_separate_evaluations(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "frontier.json"
    result = invoke("eval", str(run), "--frontier", "--device", "cpu", "--out", str(out))
    assert result.exit_code == 0, result.output
    values = json.loads(out.read_text())
    folders = sorted((run / "frontier").iterdir())
    assert folders
    for folder, row in zip(folders, values["plans"], strict=True):
        alone, plan = maqee.evaluate(folder, device="cpu"), Plan.load(folder / "plan.json")
        assert alone.plan is not None
        assert alone.plan.to_json().items() <= row.items()
        assert folder.name == f"drop-{row['drop']:.4f}"
        assert row["target"] == plan.budget.min_metric
        assert plan.expected is not None
        assert (row["expected"], row["expected_error"]) == (plan.expected.metric, plan.expected.metric_error)
        assert row["bits"] == json.loads(plan.to_json())["bits"]
        assert f"{row['accuracy']:.2%}" in result.output
    assert (values["images"], values["metric"], values["accuracy_is"]) == (360, "accuracy", "simulated")
    assert str(run.parent) not in out.read_text()


def test_images_are_opened_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from maqee.evaluation import frontier_plans

    opened = []

    def open_and_count(*arguments: Any) -> ImageSet:
        opened.append(arguments)
        return open_split(*arguments)

    monkeypatch.setattr(frontier_plans, "open_split", open_and_count)
    assert len(evaluate_frontier(run, device="cpu").rows) > 1
    assert len(opened) == 1


def test_other_images(run: Path) -> None:
    found = maqee.evaluate(run, split="calibration", device="cpu", frontier=True)
    assert found.data == "digits calibration"


def test_folders_in_order_and_nothing_else(run: Path, tmp_path: Path) -> None:
    [first, *_] = (run / "frontier").iterdir()
    for name in ("drop-0.1000", "drop-0.0050", "drop-10.0000", "drop-x", "other"):
        shutil.copytree(first, tmp_path / "frontier" / name)
    (tmp_path / "frontier" / "drop-0.2000").mkdir()  # without a plan
    assert [drop for drop, _ in frontier_folders(tmp_path)] == [0.005, 0.1, 10.0]


def test_a_folder_without_a_frontier(run: Path) -> None:
    for folder, words in (
        (
            next((run / "frontier").iterdir()),
            "holds no frontier of plans: compress the model with search.frontier",
        ),
        (FIXTURES / "digits", "holds no compressed model"),
    ):
        result = invoke("eval", str(folder), "--frontier", "--device", "cpu")
        assert result.exit_code == 2
        assert words in str(result.exception)
