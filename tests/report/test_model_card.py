"""The model card: what the plan says, a header that parses, equal bytes, and nobody's own words lost."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from maqee.apq import Budget, Plan
from maqee.errors import MaqeeError
from maqee.report.model_card import OURS, PIPELINES, write_model_card
from maqee.tasks import tasks
from tests.apq.makers import make_trace
from tests.report.run_folders import write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "my run")


def card(folder: Path) -> str:
    path = write_model_card(folder)
    assert path == folder / "README.md"
    return path.read_text()


def tables(text: str) -> list[list[str]]:
    return [block.split("\n") for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)]


def test_what_it_says(folder: Path) -> None:
    text, plan = card(folder), Plan.load(folder / "plan.json")
    assert plan.expected is not None
    for words in (
        "# my run",
        f"{plan.got.metric:.2%}",
        f"{plan.expected.metric:.2%} ± 1.20%",
        "at most 2.00% below full precision",
        "imulated",
        'maqee.load("my run")',
        "| data | digits |",
        "| quantization | erq, simulated in every figure here |",
        "None was asked for.",
    ):
        assert words in text, words
    assert "/somewhere/far" not in text  # of this machine
    exits = tables(text)[1]
    assert exits[-2].startswith("| full depth | the model's own | all others |")
    assert len(exits) == 3 + len(plan.exit_blocks) + 1  # head, rule, exits, full depth, the end


def test_tables_are_whole_and_the_header_parses(folder: Path) -> None:
    text = card(folder)
    for table in tables(text):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table if line}) == 1
    header = yaml.safe_load(text.split("---\n")[1])
    assert (header["library_name"], header["pipeline_tag"]) == ("maqee", "image-classification")


def test_every_task_has_a_name_on_the_hub() -> None:
    assert set(PIPELINES) == {tasks[name].targets for name in tasks}


def test_other_tasks_and_models_without_exits(tmp_path: Path) -> None:
    dense = card(write_folder(tmp_path / "dense", make_trace(task="segmentation"), budget=Budget(max_bops=1e5)))
    assert "pipeline_tag: image-segmentation" in dense
    assert "image IoU" in dense
    plain = card(write_folder(tmp_path / "plain", make_trace(exit_blocks=(4,)), thresholds=()))
    assert "## Exits" not in plain


def test_equal_runs_give_equal_bytes(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / folder.name)
    assert card(copy) == card(folder) == card(folder)


def test_own_words_are_left_alone(folder: Path) -> None:
    text = card(folder)
    (folder / "README.md").write_text(text.replace(f"{OURS}\n", "") + "Mine.\n")
    assert write_model_card(folder) is None
    assert (folder / "README.md").read_text().endswith("Mine.\n")


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="is no folder"):
        write_model_card(tmp_path / "none")
