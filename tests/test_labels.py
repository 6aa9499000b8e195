"""The right labels on the whole road: a model that knows its classes by name is right whatever order they are in.

The ViT is right by construction (see tests/coloured.py), so that any accuracy but 1 means that labels were mixed up.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from maqee.bench.integers import bench_integers
from maqee.compression import compress
from maqee.evaluation.answers import answer
from maqee.evaluation.evaluate_run import evaluate
from maqee.evaluation.quantization import compare_methods
from maqee.evaluation.shown import open_shown
from maqee.models import load_backbone
from maqee.runs import model_folder
from maqee.runtime import load
from maqee.training.trainer import run_recipe
from tests.coloured import COLOURS, SORTED, coloured_options, coloured_recipe, save_coloured_vit, write_colours
from tests.helpers import invoke

pytestmark = pytest.mark.trains

ORDERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # colours as the logits have them, and their names
    "as the folders": (SORTED, SORTED),
    "reversed": (SORTED[::-1], ("snow", "Sea lion", "grass", "cherry")),
    "a cycle": (("grass", "sea_lion", "snow", "cherry"), ("Grass", "sea-lion", "snow, Nix nivis", "cherry")),
}


@dataclass(frozen=True)
class Road:
    """One order of classes, and what every command left."""

    classes: tuple[str, ...]
    model: Path
    data: Path
    run: Path
    compressed: Path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_colours(tmp_path_factory.mktemp("data") / "colours")


@pytest.fixture(scope="module", params=ORDERS)
def road(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Road:
    place, (order, classes) = tmp_path_factory.mktemp("road"), ORDERS[request.param]
    model = save_coloured_vit(place / "model", order, classes)
    run_recipe(coloured_recipe(model, data), place / "run", device="cpu")
    compress(place / "run", options=coloured_options(), out=place / "compressed", device="cpu", show=False)
    return Road(classes, model, data, place / "run", place / "compressed")


def test_quantize(road: Road) -> None:
    found = compare_methods(
        road.model, "folder", data_root=road.data, method=("rtn",), bits=("W8A8",), images=2, show=False
    )
    assert [row["accuracy"] for row in found.to_json()["rows"]] == [[1.0], [1.0]]  # full precision and quantized


def test_train(road: Road) -> None:
    stage = model_folder(road.run)
    assert load_backbone(stage).classes == road.classes
    entry = json.loads((stage / "stage.json").read_text())
    assert entry["calibration"] == {"accuracy@1": 1.0, "accuracy@2": 1.0, "accuracy@3": 1.0}
    first = json.loads((road.run / "log.jsonl").read_text().splitlines()[0])
    assert first["loss"] < 0.1  # of both heads, which know the colours from the start: they were told no other labels


def test_evaluate(road: Road) -> None:
    for folder in (road.run, road.compressed):
        for split in ("test", "calibration"):
            figures = evaluate(folder, split=split, device="cpu")
            assert [row.metrics["accuracy"] for row in figures.exits] == [1.0, 1.0, 1.0]
    assert figures.plan is not None
    assert figures.plan.metrics["accuracy"] == 1.0


def test_show(road: Road, tmp_path: Path) -> None:
    result = invoke("show", str(road.compressed), "--out", str(tmp_path), "--images", "2")
    assert result.exit_code == 0, result.output
    assert len(list(tmp_path.glob("*.png"))) == 2
    for folder in (road.run, road.compressed):
        shown = open_shown(folder, None, "test", None, None)
        for index in range(0, len(shown.data), 3):
            example = answer(shown.network, shown.policy, shown.data, index, shown.task)
            truth = shown.data.classes[int(example.target)]
            assert _same(truth, Path(example.name).parent.name)
            assert {shown.data.classes[int(given.output.argmax())] for given in example.answers} == {truth}


def test_predict(road: Road) -> None:
    """What a user sees: the name at the place of the largest logit is the picture's colour."""
    for folder in (road.run, road.compressed):
        ready = load(folder)
        assert ready.classes == road.classes
        assert ready.to_json()["classes"] == list(road.classes)
        for name, colour in COLOURS.items():
            pixels = torch.tensor(colour).float()[None, :, None, None].expand(1, 3, *ready.preprocessing.image_size)
            logits = ready((pixels / 255 - 0.5) / 0.5)
            assert _same(ready.classes[int(logits.argmax())], name)


def test_predict_on_the_command_line(road: Road) -> None:
    """The name of every test picture is that of its folder, whatever the order of id2label."""
    for folder in (road.run, road.compressed):
        result = invoke("predict", str(folder), str(road.data / "test"), "--top", "1", "--json", "--device", "cpu")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert len(found) == 3 * len(COLOURS)
        for entry in found:
            assert _same(entry["labels"][0]["name"], Path(entry["image"]).parent.name)


def test_every_folder_keeps_the_names(road: Road) -> None:
    for folder in (model_folder(road.run), road.compressed):
        assert json.loads((folder / "config.json").read_text())["classes"] == list(road.classes)


def test_integers_of_a_run(road: Road) -> None:
    """It takes what `compress` takes: a run, split as in training, with its exits."""
    for model, layer in ((road.run, "heads.0.readout.linear"), (road.model, "blocks.0.attn.qkv")):
        found = bench_integers(
            model, "folder", data_root=road.data, images=8, method="rtn", calibration=3, layer_images=2, show=False
        )
        assert found.to_json()["agreement"] == 1.0
        assert layer in found.to_json()["layers"]


def test_other_names_are_refused(road: Road, tmp_path: Path) -> None:
    other = write_colours(tmp_path / "other", names={"grass": "moss", "snow": "chalk"})
    arguments = ("--data", "folder", "--data-root", str(other))
    for command in (
        ("quantize", str(road.model), *arguments),
        ("compress", str(road.run), *arguments, "--out", str(tmp_path / "out")),
        ("baselines", str(road.run), *arguments),
        ("envelope", str(road.run), *arguments),
        ("bench", "integers", str(road.model), *arguments),
        ("eval", str(road.run), "--data-root", str(other)),
        ("eval", str(road.compressed), "--data-root", str(other)),
        ("show", str(road.compressed), "--data-root", str(other), "--out", str(tmp_path / "sheets")),
        ("diagnose", str(road.compressed), "--data-root", str(other)),
    ):
        result = invoke(*command)
        assert result.exit_code == 2, command
        message = str(result.exception)
        assert "2 of 4 classes are unknown to the model ('chalk', 'moss')" in message
        assert repr(road.classes[0]) in message
    assert not (tmp_path / "out").exists()


def test_training_on_other_names_makes_a_new_classifier(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_coloured_vit(tmp_path / "model", names=("moss", "chalk", "rust", "sky"))
    with caplog.at_level(logging.WARNING):
        run_recipe(coloured_recipe(model, data, "finetune"), tmp_path / "run", device="cpu")
    assert "knows other classes than" in caplog.text
    assert load_backbone(model_folder(tmp_path / "run")).classes == SORTED


def test_a_model_without_names_takes_them_over(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = save_coloured_vit(tmp_path / "model", names=None)
    with caplog.at_level(logging.WARNING):
        found = compare_methods(model, "folder", data_root=data, method=("rtn",), images=1, show=False)
    assert found.to_json()["rows"][0]["accuracy"] == [1.0]
    assert "The model has no class names: the classes of" in caplog.text
    run_recipe(coloured_recipe(model, data), tmp_path / "run", device="cpu")
    assert load(tmp_path / "run").classes == SORTED
    caplog.clear()
    assert evaluate(tmp_path / "run", device="cpu").exits[-1].metrics["accuracy"] == 1.0
    assert "class names" not in caplog.text


def _same(one: str, other: str) -> bool:
    return one.split(",")[0].lower().replace("-", "_").replace(" ", "_") == other
