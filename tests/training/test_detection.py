"""A miniature detector from recipe to figures: it learns, every exit answers, and the command line knows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image

from maqee.errors import MaqeeError
from maqee.evaluation.cost_report import cost
from maqee.evaluation.trained import evaluate_trained
from maqee.exits import add_exits
from maqee.models import load_backbone
from maqee.tasks import Detection
from maqee.training import read_recipe, run_recipe
from maqee.training.optimizer import has_decay, peak_rate
from maqee.training.recipe import StageSection
from maqee.training.stages import ClassifierWise, Joint
from tests.helpers import invoke

pytestmark = pytest.mark.trains

COLOURS = ((255, 60, 60), (60, 255, 60), (60, 60, 255))


def write_shapes(root: Path, count: int = 16) -> Path:
    """One coloured rectangle an image, its colour is its class; the same images in all three splits, but for one pixel.

    The pixel makes them other files, as calibration images must be that no model was trained on.
    """
    for mark, split in enumerate(("train", "val", "test")):
        generator = torch.Generator().manual_seed(0)
        (root / split).mkdir(parents=True)
        images, boxes = [], []
        for number in range(count):
            width, height, x, y = torch.rand(4, generator=generator).tolist()
            width, height = round(12 + 12 * width), round(10 + 10 * height)
            left, top = round(x * (48 - width)), round(y * (32 - height))
            picture = Image.new("RGB", (48, 32))
            picture.paste(COLOURS[number % 3], (left, top, left + width, top + height))
            picture.putpixel((47, 31), (mark, mark, mark))
            picture.save(root / split / f"{number}.png")
            images.append({"id": number, "file_name": f"{number}.png", "width": 48, "height": 32})
            box = {"id": number, "image_id": number, "category_id": number % 3, "bbox": [left, top, width, height]}
            boxes.append(box)
        categories = [{"id": label, "name": name} for label, name in enumerate(("red", "green", "blue"))]
        values = {"images": images, "annotations": boxes, "categories": categories}
        (root / f"{split}.json").write_text(json.dumps(values))
    return root


def recipe_for(data: Path, path: Path, epochs: int, **changes: Any) -> Path:
    values = {
        "name": "shapes",
        "task": "detection",
        "model": {"source": "test-yolos"},
        "data": {"name": "coco", "path": str(data)},
        "exits": {"scheme": "detection", "positions": [2, 3]},
        "stages": [{"kind": "joint", "epochs": epochs, "batch_size": 16, "lr": 2e-3, "warmup": 5, "weight_decay": 0.0}],
    }
    path.write_text(yaml.safe_dump(values | changes))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that was to learn its images by heart."""
    root = tmp_path_factory.mktemp("shapes")
    data = write_shapes(root / "data")
    run_recipe(read_recipe(recipe_for(data, root / "shapes.yaml", epochs=160)), root / "run", device="cpu")
    return root / "run"


def test_loss_falls_and_every_exit_finds_the_shapes(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    losses = [line["loss@4"] for line in lines]
    assert losses[-1] < 0.4 * losses[0]
    result = evaluate_trained(run, device="cpu").to_json()
    assert result["metric"] == "mAP@0.5"
    for row in result["exits"]:
        assert row["mAP@0.5"] > 0.15, row  # without training it is about 0
        assert 0 < row["mAP@[.5:.95]"] <= row["mAP@0.5"]
        assert 0 <= row["score"] <= 1
    assert [row["block"] for row in result["exits"]] == [2, 3, 4]


def test_command_line(run: Path) -> None:
    shown = invoke("eval", str(run), "--device", "cpu")
    assert shown.exit_code == 0, shown.output
    assert "mAP@0.5" in shown.output
    assert "mAP@[.5:.95]" in shown.output
    cost = invoke("cost", str(run / "1-joint"))
    assert cost.exit_code == 0, cost.output
    assert "exit 2 head (detection)" in cost.output


def test_plain_finetuning_then_exits_started_from_the_final_heads(tmp_path: Path) -> None:
    data = write_shapes(tmp_path / "data", count=6)
    settings = {"epochs": 2, "batch_size": 6, "lr": 1e-3}
    stages = [{"kind": "finetune", **settings}, {"kind": "classifier-wise", **settings}]
    recipe = recipe_for(data, tmp_path / "r.yaml", 1, stages=stages)
    summary = run_recipe(read_recipe(recipe), tmp_path / "run", device="cpu")
    assert [list(stage["calibration"]) for stage in summary["stages"]] == [
        ["mAP@0.5@4"],
        ["mAP@0.5@2", "mAP@0.5@3", "mAP@0.5@4"],
    ]
    assert evaluate_trained(tmp_path / "run", stage="1-finetune", device="cpu").exits[0].block == 4


def test_a_plain_vit_is_made_a_detector_by_the_recipe(tmp_path: Path) -> None:
    data = write_shapes(tmp_path / "data", count=6)
    model = {"source": "test-dinov2", "image_size": [32, 48], "detection_tokens": 4, "fold_layer_scale": True}
    stages = [{"kind": "joint", "epochs": 2, "batch_size": 6, "lr": 1e-3, "distillation": 0.3}]
    recipe = recipe_for(data, tmp_path / "r.yaml", 1, model=model, stages=stages)
    run_recipe(read_recipe(recipe), tmp_path / "run", device="cpu")
    assert load_backbone(tmp_path / "run" / "1-joint").config.image_size == (32, 48)


def test_label_smoothing_is_refused(tmp_path: Path) -> None:
    data = write_shapes(tmp_path / "data", count=6)
    stages = [{"kind": "joint", "epochs": 1, "batch_size": 6, "lr": 1e-3, "label_smoothing": 0.1}]
    recipe = recipe_for(data, tmp_path / "r.yaml", 1, stages=stages)
    with pytest.raises(MaqeeError, match="label_smoothing"):
        run_recipe(read_recipe(recipe), tmp_path / "run", device="cpu")


@pytest.mark.parametrize("stage", [Joint, ClassifierWise])
def test_stages_train_what_they_should(stage: type[Joint] | type[ClassifierWise]) -> None:
    network = add_exits(load_backbone("test-yolos"), "detection", (2, 3))
    module = stage(network, Detection())
    trained = dict(module.trained_parameters())
    loss, _ = module.train()(torch.randn(2, 3, 32, 48), torch.tensor([[[1, 0.5, 0.5, 0.2, 0.2]]] * 2), 1)
    loss.backward()
    for name, parameter in trained.items():
        assert parameter.grad is not None, name


def test_detection_tokens_learn_like_positions_and_do_not_decay() -> None:
    settings = StageSection(kind="joint", epochs=1, lr=1e-4, head_lr=1e-3, layer_decay=0.5)
    for name, parameter in load_backbone("test-yolos").named_parameters():
        full = f"model.backbone.{name}"
        assert (peak_rate(full, settings, 4) == 1e-3) == name.startswith("head."), name
        if name.endswith(("position", "token", "tokens")):
            assert not has_decay(full, parameter), name
        if name == "embedding.detection_tokens":
            assert peak_rate(full, settings, 4) == peak_rate("model.backbone.embedding.position", settings, 4)


def test_cost_of_a_preset_with_exits() -> None:
    parts = {part.name: part.macs for part in cost("yolos-tiny", exits="detection").parts}
    assert parts["exit 4 head (detection)"] == parts["classifier"] == 100 * (4 * 192**2 + 192 * (92 + 4))
