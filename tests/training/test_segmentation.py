"""A miniature of the whole road: CamVid's layout, a small ViT with SegFormer exits, train, evaluate, mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray

from maqee.data import eval_batches, open_data
from maqee.evaluation.record import measure_exits
from maqee.evaluation.trained import evaluate_trained
from maqee.exits import EarlyExitModel, Policy, add_exits
from maqee.io import read_json
from maqee.models import load_backbone
from maqee.tasks import Task, tasks
from maqee.training import read_recipe, run_recipe
from maqee.training.stages import ClassifierWise, Finetune, Joint, Stage
from tests.data import makers
from tests.helpers import invoke, parting_thresholds

pytestmark = pytest.mark.trains

EXITS = (1, 2, 3)


def picture(seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """An image (3, 32, 48) of three coloured areas, and its mask with an unlabelled edge."""
    random = np.random.default_rng(seed)
    rows, column = 8 * random.integers(1, 4), 8 * random.integers(1, 6)
    mask = np.zeros((32, 48), dtype=np.uint8)
    mask[rows:] = 1
    mask[rows:, column:] = 2
    colours = np.array([[40, 90, 220], [90, 90, 90], [220, 60, 40]])
    pixels = colours[mask].transpose(2, 0, 1) + random.integers(-20, 20, (3, 32, 48))
    mask[:, :2] = 3
    return pixels.clip(0, 255).astype(np.uint8), mask


def write_pictures(folder: Path, **counts: int) -> Path:
    """A small CamVid of such pictures, so many in each split."""
    members = makers.camvid_members(count=0)
    for start, (split, count) in enumerate(counts.items()):
        for index in range(count):
            pixels, mask = picture(1000 * start + index)
            members[f"{split}/images/{index:02}.png"] = makers.encode(pixels)
            members[f"{split}/masks/{index:02}.png"] = makers.encode_mask(mask)
    return makers.write_tar(folder / "camvid_small.tar", members)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data"), train=24, val=6, test=8)


def write_recipe(folder: Path, data: Path, **stage: object) -> Path:
    settings = {"kind": "joint", "epochs": 12, "batch_size": 8, "lr": 2e-3, "distillation": 0.3} | stage
    values = {
        "name": "small",
        "task": "segmentation",
        "model": {"source": "test-vit", "image_size": [32, 48]},
        "data": {"name": "camvid", "path": str(data)},
        "exits": {"scheme": "segformer", "positions": list(EXITS)},
        "stages": [settings | {"augment": {"flip": True, "min_scale": 0.5, "jitter": 0.1}}],
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    folder = tmp_path_factory.mktemp("run")
    out = folder / "out"
    result = invoke("train", str(write_recipe(folder, data)), "--out", str(out), "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "mIoU@4" in result.output
    return out


def test_the_loss_falls_and_the_test_images_are_understood(run: Path) -> None:
    result = evaluate_trained(run, device="cpu").to_json()
    assert (result["metric"], result["task"], result["images"]) == ("mIoU", "segmentation", 8)
    assert [row["block"] for row in result["exits"]] == [*EXITS, 4]
    for row in result["exits"]:
        assert row["head"] == "segformer"
        assert row["mIoU"] > 0.6, row
        assert row["pixel accuracy"] > 0.75, row
    calibration = read_json(run / "1-joint" / "stage.json")["calibration"]
    assert set(calibration) == {f"mIoU@{block}" for block in (*EXITS, 4)}


def test_policies_are_measured_by_the_metric_of_what_really_runs(run: Path, data: Path) -> None:
    task = tasks["segmentation"]
    test = open_data("camvid", data).test
    model = EarlyExitModel.load(run / "1-joint", task.confidence).eval()
    record = measure_exits(model, test, task).record
    assert record.score.shape == (8, 4)
    policy = Policy(parting_thresholds(torch.from_numpy(record.confidence[:, :-1])))
    measured = measure_exits(model, test, task, [policy, Policy.never(3)], batch_size=3)
    executed = task.metric()
    images, masks = next(eval_batches(test, model.backbone.preprocessing, 8))
    decision = model.run(images, policy)
    executed.update(decision.output, masks)
    assert measured.policies[0].compute() == pytest.approx(executed.compute(), abs=1e-3)  # a pixel may be rounded over
    assert measured.policies[1].compute() == pytest.approx(measured.exits[-1].compute())
    assert len(set(decision.exit.tolist())) > 1


def test_evaluation_on_the_command_line(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    result = invoke("eval", str(run), "--device", "cpu", "--out", str(out), "--task", "segmentation-patch")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("exit after block"))
    assert lines[first].split()[-5:] == ["mIoU", "pixel", "accuracy", "MACs", "share"]
    assert [line.split()[0] for line in lines[first + 1 : first + 5]] == ["1", "2", "3", "4"]
    assert any(line.startswith("threshold") and "mIoU" in line for line in lines)
    written = read_json(out)
    assert written["task"] == "segmentation-patch"
    assert written["policies"][-1]["mIoU"] == written["exits"][-1]["mIoU"]
    cost = invoke("cost", str(run / "1-joint"))
    assert cost.exit_code == 0, cost.output
    assert cost.output.count("head (segformer)") == 4


def test_a_recipe_decides_the_weights(data: Path, tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, data), ["stages.0.epochs=2"])
    run_recipe(recipe, tmp_path / "one", "cpu")
    run_recipe(recipe, tmp_path / "two", "cpu")
    one, two = (EarlyExitModel.load(tmp_path / name / "1-joint").state_dict() for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("kind", ["finetune", "classifier-wise"])
def test_other_stages_train_what_they_say(kind: str, data: Path, tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, data, kind=kind, epochs=1, distillation=0.0, label_smoothing=0.05))
    summary = run_recipe(recipe, tmp_path / "out", "cpu")
    assert set(summary["stages"][0]["calibration"]) == {f"mIoU@{block}" for block in (*EXITS, 4)}


def changed_by(stage: Stage) -> set[str]:
    """Heads that get a gradient, by index; "backbone" for the rest."""
    trained = dict(stage.trained_parameters())
    for name, parameter in stage.named_parameters():
        parameter.requires_grad_(name in trained)
    masks = torch.randint(0, 10, (2, 32, 32), dtype=torch.uint8)
    stage.train()(torch.randn(2, 3, 32, 32), masks, 1)[0].backward()
    names = [name for name, parameter in stage.named_parameters() if parameter.grad is not None]
    return {name.split(".")[2] if name.startswith("model.heads.") else "backbone" for name in names}


def test_who_learns_in_each_stage() -> None:
    task: Task = tasks["segmentation"]
    network = add_exits(load_backbone("test-vit"), "segformer", EXITS)
    assert changed_by(Finetune(network, task)) == {"backbone", "3"}
    network.zero_grad(set_to_none=True)
    assert changed_by(ClassifierWise(network, task)) == {"0", "1", "2", "3"}
    network.zero_grad(set_to_none=True)
    assert changed_by(Joint(network, task)) == {"backbone", "0", "1", "2", "3"}


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_wrong_combinations_are_named(data: Path, tmp_path: Path) -> None:
    path = write_recipe(tmp_path, data)
    for number, (change, fragment) in enumerate(
        {
            "exits.scheme=mlp": "segformer",
            "task=segmentatoin": "segmentation",
            "stages.0.augment.mixup=0.4": "mixup",
            "stages.0.teacher=runs/other": "a teacher can teach classification only, not segmentation: remove it",
            "stages.0.augment.trivial=true": "which do not follow turns: turn trivial off",
            "model.image_size=[32,47]": "patch_size",
            "model.source=test-swin": "plain ViT",
            "task=classification": "labels",
        }.items()
    ):
        result = invoke("train", str(path), change, "--out", str(tmp_path / str(number)), "--device", "cpu")
        assert result.exit_code == 2, (change, result.exception)
        assert fragment in str(result.exception), change
