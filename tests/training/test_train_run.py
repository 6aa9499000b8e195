"""`maqee.train`: from a name, a file or a recipe to a run folder and a value that tells what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import maqee
from maqee.data import open_data
from maqee.data.seen import count_seen
from maqee.errors import MaqeeError
from tests.helpers import invoke

pytestmark = pytest.mark.trains

TINY = {
    "name": "tiny",
    "model": {"source": "vit-digits"},
    "data": {"name": "digits"},
    "exits": {"scheme": "mlp", "positions": [2, 4]},
    "stages": [
        {"kind": "finetune", "epochs": 0.1, "batch_size": 32, "lr": 0.001},
        {"kind": "classifier-wise", "epochs": 0.1, "batch_size": 32, "lr": 0.001},
    ],
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return path


def test_what_happened_is_a_value(recipe: Path, tmp_path: Path) -> None:
    done = maqee.train(recipe, ["seed=3"], tmp_path / "run", "cpu")
    assert done.folder == tmp_path / "run"
    assert (done.recipe.seed, done.recipe.name) == (3, "tiny")
    assert [stage.stage for stage in done.stages] == ["1-finetune", "2-classifier-wise"]
    assert list(done.stages[1].calibration) == ["accuracy@2", "accuracy@4", "accuracy@8"]
    assert done.to_json() == json.loads((done.folder / "train.json").read_text())
    again = maqee.train(done.recipe, out=done.folder, device="cpu")  # nothing left to do
    assert again.stages == done.stages


def test_a_run_has_the_name_of_its_recipe(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe.write_text(yaml.safe_dump({**TINY, "stages": TINY["stages"][:1]}))  # type: ignore[index]
    result = invoke("train", str(recipe), "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads((tmp_path / "runs" / "tiny" / "train.json").read_text())


def test_training_goes_on_from_a_run(recipe: Path, tmp_path: Path) -> None:
    """A run stands for its last stage, as it does for other commands; what it has seen is remembered."""
    first = maqee.train(recipe, ["stages.1.epochs=0.05"], tmp_path / "first", "cpu")
    more = ["stages.0.lr=1e-9", f"model.source={first.folder}"]
    second = maqee.train(recipe, more, tmp_path / "second", "cpu")
    assert second.stages[0].calibration["accuracy@8"] == first.stages[1].calibration["accuracy@8"]
    seen = [
        count_seen(run / "1-finetune", open_data("digits", None).training().images)
        for run in (first.folder, second.folder)
    ]
    assert seen[0] == seen[1] == len(open_data("digits", None).training())


def test_mistakes(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="did you mean digits"):
        maqee.train("digit")
    with pytest.raises(MaqeeError, match="give them to read_recipe"):
        maqee.train(maqee.read_recipe(recipe), ["seed=1"], tmp_path / "run")
