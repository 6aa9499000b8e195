"""What lies in the folder is the model that follows its plan; a folder that does not belong together says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from maqee import runs
from maqee.apq import SearchOptions
from maqee.compression import compress
from maqee.data import eval_batches
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy, load_with_exits
from maqee.io import write_json
from maqee.models import load_backbone, save_backbone
from maqee.quant.artifact import save_quantized
from maqee.runs import is_compressed
from maqee.runtime import ReadyModel, load
from tests.compression.makers import digits, quick_options
from tests.helpers import parting_thresholds, set_weights

pytestmark = pytest.mark.trains

BITS = (5, 4, 4, 3)


@pytest.fixture(scope="module")
def done(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ReadyModel]:
    """A plan changed by hand: bits that differ when turned round, thresholds where some of the images leave."""
    out = tmp_path_factory.mktemp("runs") / "compressed"
    options, how = quick_options(method="erq"), SearchOptions(max_swaps=0)
    found = compress(model_folder, data="digits", search_options=how, options=options, out=out, device="cpu")
    set_weights(found.quantized, BITS)
    images, _ = next(eval_batches(digits("test"), found.model.backbone.preprocessing, 100))
    with torch.inference_mode():
        outputs = found.model.forward_all(images).outputs[:-1]
    thresholds = parting_thresholds(torch.stack([found.model.confidence(output) for output in outputs], dim=1))
    plan = replace(found.plan, bits=found.quantized.bit_settings, thresholds=thresholds, history=())
    save_quantized(found.quantized, out)
    plan.save(out / "plan.json")
    return out, found.with_plan(plan)


@pytest.fixture
def copied(done: tuple[Path, ReadyModel], tmp_path: Path) -> Path:
    return shutil.copytree(done[0], tmp_path / "copy")


def test_loading_gives_the_model_that_was_found(done: tuple[Path, ReadyModel]) -> None:
    out, found = done
    images, _ = next(eval_batches(digits("test"), found.model.backbone.preprocessing, 100))
    compressed = load(out)
    assert compressed.plan == found.plan
    decision = found.model.run(images, found.plan.policy)
    again = compressed.run(images)
    assert torch.equal(again.exit, decision.exit)
    assert torch.equal(again.output, decision.output)
    assert torch.equal(compressed(images), decision.output)
    assert set(decision.exit.tolist()) == {0, 1, 2}  # some leave at each exit, some do not
    assert compressed.preprocessing == found.model.backbone.preprocessing
    assert compressed.to("cpu") is compressed
    every = compressed.model.run(images, Policy.never(2)).output
    torch.testing.assert_close(every, found.model(images).detach())


def test_what_is_in_the_folder(done: tuple[Path, ReadyModel]) -> None:
    out, _ = done
    names = {path.name for path in out.iterdir()}
    assert {"plan.json", "trace.safetensors", "model.safetensors", "config.json", "source.json"} <= names
    assert {"preprocessor_config.json", "request.json", "search.json", "examples.json"} <= names
    assert is_compressed(out)
    source = json.loads((out / "source.json").read_text())
    assert source["data"] == {"data": "digits", "path": None, "holdout": None, "seed": 0}


def change_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("damage", "hint"),
    [
        (lambda folder: (folder / "plan.json").unlink(), "was written neither|holds no|no folder|config.json"),
        (lambda folder: (folder / "plan.json").write_text("{"), "not valid JSON"),
        (lambda folder: (folder / "plan.json").write_text("{}"), "plan.json"),
        (lambda folder: change_json(folder / "plan.json", lambda v: v.update(version=9)), "version"),
        (
            lambda folder: change_json(folder / "plan.json", lambda v: v["bits"]["blocks"].reverse()),
            "copy the whole folder again",
        ),
        (lambda folder: change_json(folder / "plan.json", lambda v: v["bits"]["blocks"].pop()), "plan.json|bits"),
        (lambda folder: change_json(folder / "plan.json", lambda v: v.update(exit_blocks=[1, 3])), "belong together"),
        (lambda folder: change_json(folder / "plan.json", lambda v: v.update(thresholds=[0.5])), "thresholds"),
        (lambda folder: change_json(folder / "plan.json", lambda v: v.update(task="poetry")), "poetry"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 50), "model.safetensors"),
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "preprocessor_config.json"),
    ],
)
def test_damaged_folders(copied: Path, damage: Callable[[Path], None], hint: str) -> None:
    damage(copied)
    with pytest.raises(MaqeeError, match=hint):
        load(copied)


def test_where_models_are_found(model_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for stage in ("1-joint", "2-heads", "10-heads"):
        shutil.copytree(model_folder, run / stage)
        write_json(run / stage / "stage.json", {})
    assert runs.model_folder(run) == run / "10-heads"
    assert runs.model_folder(run / "1-joint") == run / "1-joint"
    assert runs.read_recipe(run / "1-joint") == {}
    recipe = {"seed": 3, "data": {"name": "digits", "holdout": 100}}
    write_json(run / "recipe.json", {"recipe": recipe})
    assert runs.read_recipe(run) == runs.read_recipe(run / "2-heads") == recipe
    with pytest.raises(MaqeeError, match="holds no model"):
        load_with_exits(tmp_path)
    save_backbone(load_backbone("vit-digits"), tmp_path / "plain")
    with pytest.raises(MaqeeError, match="without exits"):
        load_with_exits(tmp_path / "plain")


def test_the_recipes_split_is_used(model_folder: Path, tmp_path: Path) -> None:
    """Other images were held out when the model was trained: those, and no others, may be used now."""
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(model_folder, run / "1-joint")
    write_json(run / "1-joint" / "stage.json", {})
    write_json(run / "recipe.json", {"recipe": {"seed": 3, "data": {"name": "digits", "holdout": 70}}})
    how = SearchOptions(max_swaps=0)
    found = compress(run, search_options=how, options=quick_options(samples=500), out=out, device="cpu")
    assert found.trace.samples == 70 - 8
    assert json.loads((out / "source.json").read_text())["data"]["seed"] == 3


def test_models_and_data_of_different_kinds(tmp_path: Path) -> None:
    from maqee.exits import add_exits

    add_exits(load_backbone("vit-digits", num_classes=7), "mlp", positions=(2,)).save(tmp_path / "seven")
    with pytest.raises(MaqeeError, match="7 classes and digits test has 10"):
        compress(tmp_path / "seven", data="digits", options=quick_options(), out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_loaded_models_have_the_tasks_confidence(copied: Path, model: EarlyExitModel) -> None:
    compressed = load(copied)
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    assert float(compressed.model.confidence(logits)) == pytest.approx(float(logits.softmax(-1).max()))
