"""A teacher sees the student's pictures as it wants them, and its word is a share of the loss at full depth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from maqee.data import open_data
from maqee.data.transforms import prepare
from maqee.exits import add_exits, backbone_of, load_network, save_network
from maqee.models import load_backbone
from maqee.models.preprocessing import Preprocessing
from maqee.tasks import Classification
from maqee.training import read_recipe, run_recipe
from maqee.training.lessons import load_lessons
from maqee.training.stages import Finetune, Joint
from maqee.training.teacher import Lesson, Teacher
from tests.helpers import max_difference

STUDENT = Preprocessing(image_size=(32, 32), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
PIXELS = torch.randint(0, 256, (4, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 2, 3])
TAUGHT: dict[str, Any] = {
    "name": "taught",
    "model": {"source": "vit-digits"},
    "data": {"name": "digits"},
    "exits": {"scheme": "mlp", "positions": [2, 4]},
    "stages": [
        {"kind": "finetune", "epochs": 0.03, "batch_size": 32, "lr": 0.001, "teacher": "tests/fixtures/digits"},
        {"kind": "joint", "epochs": 0.06, "batch_size": 32, "lr": 0.001, "teacher": "tests/fixtures/digits"},
        {"kind": "classifier-wise", "epochs": 0.03, "batch_size": 32, "lr": 0.001},
    ],
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "taught.yaml"
    path.write_text(yaml.safe_dump(TAUGHT))
    return path


@pytest.mark.parametrize(
    "own",
    [
        STUDENT,
        Preprocessing(image_size=(32, 32), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)),
        Preprocessing(image_size=(48, 40)),
        Preprocessing(image_size=(16, 16), mean=(120.0, 110.0, 100.0), std=(60.0, 50.0, 40.0), rescale=1.0),
    ],
)
def test_a_teacher_sees_pictures_as_if_they_were_prepared_for_it(own: Preprocessing) -> None:
    backbone = load_backbone("test-vit")
    backbone.preprocessing = own
    seen: list[Tensor] = []

    def remember(images: Tensor) -> Tensor:
        seen.append(images)
        return torch.zeros(len(images), 10)

    backbone.forward = remember  # type: ignore[method-assign]
    Teacher(backbone, STUDENT, list(range(10)))(prepare(PIXELS, STUDENT))
    assert max_difference(seen[0], prepare(PIXELS, own)) < 1e-5


def test_the_share_of_imitation_is_as_asked_for_and_nothing_of_the_teacher_is_trained_or_saved() -> None:
    student, other = add_exits(load_backbone("test-vit"), "lgvit").eval(), load_backbone("test-deit").eval()
    task, images = Classification(), prepare(PIXELS, student.backbone.preprocessing)
    teacher = Teacher(other, student.backbone.preprocessing, list(range(10)))
    *_, output = student.forward_all(images).outputs
    hard = task.loss(output, LABELS).mean().item()
    soft = task.distillation(output, other(prepare(PIXELS, other.preprocessing)), 2.0).mean().item()
    for share in (0.0, 0.25, 1.0):
        lesson, expected = Lesson(teacher, share), (1 - share) * hard + share * soft
        for stage in (Finetune(student, task, lesson), Joint(student, task, lesson=lesson)):
            assert stage.eval()(images, LABELS, 0)[0].item() == pytest.approx(expected, rel=1e-5)
            assert set(stage.state_dict()) == {f"model.{name}" for name in student.state_dict()}
            assert not stage.train().lesson.teacher.network.training  # type: ignore[union-attr]
            stage.eval()
        _, pieces = Joint(student, task, lesson=lesson).eval()(images, LABELS, 1)  # all exits, of which one is taught
        assert pieces["loss@4"].item() == pytest.approx(expected, rel=1e-5)
    assert not any(parameter.requires_grad for parameter in other.parameters())


def test_logits_are_matched_by_the_names_of_classes(recipe: Path, tmp_path: Path) -> None:
    """The same network with its classes in another order teaches the same."""
    network = load_network("tests/fixtures/digits")
    backbone: Any = backbone_of(network)
    named = tuple(f"digit {number}" for number in range(10))
    order = torch.randperm(10, generator=torch.Generator().manual_seed(1))
    splits = open_data("digits", None)
    splits = replace(splits, test=replace(splits.test, classes=named))
    images = prepare(splits.test.images.load([0, 1, 2, 3], backbone.preprocessing), backbone.preprocessing)
    expected = network.eval()(images)
    with torch.no_grad():
        backbone.head.linear.weight.copy_(backbone.head.linear.weight[order])
        backbone.head.linear.bias.copy_(backbone.head.linear.bias[order])
    backbone.classes = tuple(named[number] for number in order)
    save_network(network, tmp_path / "other")
    changed = read_recipe(recipe, [f"stages.0.teacher={tmp_path / 'other'}", "stages.1.teacher=null"])
    lessons = load_lessons(changed, [], backbone.preprocessing, splits, torch.device("cpu"))
    assert list(lessons) == ["1-finetune"]
    assert max_difference(lessons["1-finetune"].teacher(images), expected) < 1e-5


@pytest.mark.trains
def test_a_recipe_with_teachers(recipe: Path, tmp_path: Path) -> None:
    done = run_recipe(read_recipe(recipe), tmp_path / "out", device="cpu")
    assert [stage["stage"] for stage in done["stages"]] == ["1-finetune", "2-joint", "3-classifier-wise"]
    without = run_recipe(
        read_recipe(recipe, ["stages.0.teacher=null", "stages.1.teacher=null"]), tmp_path / "without", device="cpu"
    )
    first, second = (load_network(tmp_path / name / "1-finetune").state_dict() for name in ("out", "without"))
    assert done["digest"] != without["digest"]
    assert first.keys() == second.keys()
    assert any(not torch.equal(first[name], second[name]) for name in first)
