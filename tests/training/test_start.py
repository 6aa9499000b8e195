"""A start that fails says why before anything is trained, and leaves the folder to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from maqee.errors import MaqeeError
from maqee.exits import save_network
from maqee.models import load_backbone
from maqee.training import read_recipe, run_recipe
from maqee.training import trainer as run_module

pytestmark = pytest.mark.trains

RECIPE: dict[str, Any] = {
    "name": "start",
    "model": {"source": "vit-digits"},
    "data": {"name": "digits"},
    "exits": {"scheme": "lgvit", "positions": [2, 4]},
    "stages": [
        {"kind": "finetune", "epochs": 0.03, "batch_size": 32, "lr": 0.001},
        {"kind": "lgvit-heads", "epochs": 0.03, "batch_size": 32, "lr": 0.001},
    ],
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "start.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("exits.scheme=lgvitt", "Unknown exit scheme 'lgvitt': did you mean lgvit"),
        ("exits.scheme=mlp", "'lgvit-heads' cannot train 'mlp' heads: choose 'classifier-wise'"),
        ("exits.scheme=detection", "detection"),
        ("exits.positions=[2, 9]", r"Exit positions \[2, 9\] must ascend within 1..7"),
        ("exits.positions=[4, 2]", "must ascend"),
        ("exits.positions=[]", "No exits were asked for"),
        ("exits.final=mlpp", "Unknown exit head 'mlpp': did you mean mlp"),
        ("data.name=digitz", "did you mean digits"),
        ("model.source=vit-digitz", "did you mean vit-digits"),
        ("model.source=vit-tiny", "3 channels, the images have 1"),
        ("task=segmentation", "segmentation"),
        ("stages.0.teacher=vit-digits", "vit-digits is a preset with random weights"),
        ("stages.0.teacher=nowhere/at/all", "nowhere/at/all"),
        ("stages.0.teacher={folder}/nine", "nine knows other classes than digits"),
        ("stages.0.teacher={folder}/coloured", "coloured takes images of other channels"),
        ("stages.1.teacher=tests/fixtures/digits", "'lgvit-heads' cannot have a teacher: remove it"),
    ],
)
def test_mistakes_are_found_before_the_first_stage(
    recipe: Path, tmp_path: Path, override: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "train_stage", lambda *arguments: pytest.fail("something was trained"))
    save_network(load_backbone("vit-digits", num_classes=9), tmp_path / "nine")
    save_network(load_backbone("test-vit"), tmp_path / "coloured")
    out = tmp_path / "out"
    with pytest.raises(MaqeeError, match=message):
        run_recipe(read_recipe(recipe, [override.replace("{folder}", str(tmp_path))]), out, device="cpu")
    assert not out.exists()


def test_the_folder_is_free_after_a_start_that_failed(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(MaqeeError):
        run_recipe(read_recipe(recipe, ["exits.positions=[2, 9]"]), out, device="cpu")
    run_recipe(read_recipe(recipe), out, device="cpu")
    assert sorted(path.name for path in out.iterdir()) == [
        "1-finetune", "2-lgvit-heads", "log.jsonl", "recipe.json", "train.json"
    ]  # fmt: skip
    with pytest.raises(MaqeeError, match="another recipe"):
        run_recipe(read_recipe(recipe, ["seed=1"]), out, device="cpu")


def test_exits_that_no_stage_trains_need_not_fit(recipe: Path, tmp_path: Path) -> None:
    """Default positions and heads are for those who ask for exits."""
    values = {**RECIPE, "stages": RECIPE["stages"][:1], "exits": {"positions": [2, 90]}}
    recipe.write_text(yaml.safe_dump(values))
    run_recipe(read_recipe(recipe), tmp_path / "out", device="cpu")


def test_a_folder_that_cannot_be_written(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MaqeeError, match=r"Cannot write .*is a file, not a folder"):
        run_recipe(read_recipe(recipe), tmp_path / "file" / "out", device="cpu")


def test_a_log_file_shows_what_is_going_on(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_recipe(read_recipe(recipe), tmp_path / "out", device="cpu")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["opening digits", "comparing training, calibration and test images"]
    assert "1-finetune 0/1" in lines
