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
from maqee.exits import backbone_of, load_network
from tests.helpers import invoke, max_difference

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
    """A run stands for its last stage, as it does for other commands; the images that it has seen are remembered."""
    first = maqee.train(recipe, [], tmp_path / "first", "cpu")
    more = ["stages.0.lr=1e-9", f"model.source={first.folder}", "seed=5"]  # which holds other images out
    second = maqee.train(recipe, more, tmp_path / "second", "cpu")
    begun, gone_on = (
        backbone_of(load_network(folder)).state_dict()
        for folder in (first.folder / "2-classifier-wise", second.folder / "1-finetune")
    )
    assert all(max_difference(gone_on[name], begun[name]) < 1e-6 for name in begun)
    seen = open_data("digits", None, seed=0).training()
    assert count_seen(second.folder / "1-finetune", seen.images) == len(seen)


def test_mistakes(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="did you mean digits"):
        maqee.train("digit")
    with pytest.raises(MaqeeError, match="give them to read_recipe"):
        maqee.train(maqee.read_recipe(recipe), ["seed=1"], tmp_path / "run")
