"""Run folders: what they are, which stage is the last, and what they were made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from maqee import runs
from maqee.errors import MaqeeError
from maqee.io import write_json
from maqee.runs import DataSource

RECIPE = {"name": "r", "seed": 3, "task": "segmentation", "data": {"name": "camvid", "path": "there", "holdout": 9}}


def add_stage(run: Path, name: str) -> Path:
    write_json(run / name / runs.STAGE, {})
    return run / name


def test_stages_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [runs.stage_name(index, kind) for index, kind in enumerate(["a", "b", *"cdefghi", "x", "b"])]
    assert names[9] == "10-x"
    for name in reversed(names):
        add_stage(tmp_path, name)
    assert [folder.name for folder in runs.finished_stages(tmp_path)] == names
    assert runs.stage_folder(tmp_path).name == runs.model_folder(tmp_path).name == "11-b"
    assert runs.stage_folder(tmp_path, "2-b") == tmp_path / "2-b"
    with pytest.raises(MaqeeError, match="has no finished stage '3-z': choose 1-a, 2-b"):
        runs.stage_folder(tmp_path, "3-z")


def test_a_folder_without_stages(tmp_path: Path) -> None:
    assert runs.model_folder(tmp_path) == tmp_path
    with pytest.raises(MaqeeError, match="holds no finished stage"):
        runs.stage_folder(tmp_path)


def test_a_training_run_knows_its_data_and_task(tmp_path: Path) -> None:
    write_json(tmp_path / runs.RECIPE, {"recipe": RECIPE, "data_path": "/data/camvid"})
    stage = add_stage(tmp_path, "1-joint")
    for folder in (tmp_path, stage):
        assert runs.data_of(folder) == DataSource("camvid", Path("/data/camvid"), 9, 3)
        assert runs.task_of(folder) == "segmentation"
    write_json(tmp_path / runs.RECIPE, {"recipe": RECIPE})  # as older versions wrote it
    assert runs.data_of(stage) == DataSource("camvid", Path("there"), 9, 3)


def test_another_name_or_place_of_the_data(tmp_path: Path) -> None:
    write_json(tmp_path / runs.RECIPE, {"recipe": RECIPE, "data_path": "/data/camvid"})
    assert runs.require_data(tmp_path, path="here") == DataSource("camvid", Path("here"), 9, 3)
    assert runs.require_data(tmp_path, "camvid", "here") == DataSource("camvid", Path("here"), 9, 3)
    assert runs.require_data(tmp_path, "digits") == DataSource("digits")  # split in its own way
    with pytest.raises(MaqeeError, match="does not say which data"):
        runs.require_data(tmp_path / "some" / "where")


def test_a_compressed_run_is_read_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    stored = DataSource("folder", Path("photos"), 5, 1).to_json()
    assert stored["path"] == str(tmp_path / "photos")
    write_json(tmp_path / "run" / runs.PLAN, {})
    write_json(tmp_path / "run" / runs.SOURCE, {"data": stored})
    monkeypatch.chdir("/")
    assert runs.is_compressed(tmp_path / "run")
    assert runs.data_of(tmp_path / "run") == DataSource("folder", tmp_path / "photos", 5, 1)


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="no folder"):
        runs.require_recipe(tmp_path / "nothing")
    with pytest.raises(MaqeeError, match=r"neither by maqee train \(recipe.json\) nor by maqee compress \(plan.json\)"):
        runs.require_recipe(tmp_path)
    write_json(tmp_path / runs.RECIPE, {"recipe": 3})
    with pytest.raises(MaqeeError, match="holds no recipe"):
        runs.require_recipe(tmp_path)
    with pytest.raises(MaqeeError, match=r"has no source\.json"):
        runs.read_source(tmp_path)
