"""What is stored goes on deciding by the confidence it was made with, whatever new work begins with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import maqee
from maqee.errors import MaqeeError
from maqee.io import read_json, write_json
from maqee.runtime import load
from maqee.tasks import pixels, segmentation, tasks
from tests.runtime.makers import ready, segmentation_model, write_compressed_run, write_pictures, write_trained_run

OTHER = "segmentation-iou"


@pytest.fixture(autouse=True)
def another_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentation, "DEFAULT", OTHER)


def write_run_with_plan(folder: Path, task: str) -> Path:
    """A compressed segmentation model whose plan names this task."""
    run, _ = write_compressed_run(folder, segmentation_model(), torch.randn(6, 3, 32, 32))
    plan = run / "plan.json"
    write_json(plan, read_json(plan) | {"task": task})
    return run


@pytest.mark.parametrize("task", ["segmentation", "segmentation-patch"])
def test_a_compressed_run_decides_by_the_confidence_its_plan_names(tmp_path: Path, task: str) -> None:
    model = load(write_run_with_plan(tmp_path / "run", task))
    assert model.task_name == task
    images = torch.randn(4, 3, 32, 32)
    decision = model.run(images)
    assert torch.equal(decision.confidence, segmentation.CONFIDENCES[task](decision.output))
    assert not torch.allclose(decision.confidence, segmentation.CONFIDENCES[OTHER](decision.output), atol=1e-3)


def test_a_trained_run_decides_by_the_confidence_its_recipe_names(tmp_path: Path) -> None:
    model = load(write_trained_run(tmp_path / "run", segmentation_model(), "segmentation"))
    assert model.task_name == "segmentation"
    decision = model.with_policy(0.0).run(torch.randn(4, 3, 32, 32))
    assert torch.equal(decision.confidence, pixels.mean_confidence(decision.output))


def test_a_model_that_nobody_has_told_a_task_begins_with_the_default(tmp_path: Path) -> None:
    segmentation_model().save(tmp_path / "model")
    assert load(tmp_path / "model").task_name == OTHER


def test_thresholds_of_a_plan_bring_their_confidence_along(tmp_path: Path) -> None:
    plan = write_run_with_plan(tmp_path / "compressed", "segmentation-patch")
    network, images = segmentation_model(), torch.randn(4, 3, 32, 32)
    network.save(tmp_path / "model")
    for folder in (write_trained_run(tmp_path / "run", network, "segmentation"), tmp_path / "model"):
        model = load(folder, policy=plan)
        assert model.task_name == "segmentation-patch"
        decision = model.run(images)
        assert torch.equal(decision.confidence, pixels.patch_confidence(decision.output))
        files = write_pictures(tmp_path / "pictures", count=3)
        assert maqee.predict(folder, files, policy=plan, device="cpu") == model.predict(files)


def test_a_loaded_model_keeps_its_confidence(tmp_path: Path) -> None:
    plan = write_run_with_plan(tmp_path / "compressed", "segmentation-patch")
    files = write_pictures(tmp_path / "pictures", count=3)
    model = ready(segmentation_model(), "segmentation")
    with pytest.raises(MaqeeError, match="by the confidence of segmentation-patch, the model by that of segmentation:"):
        maqee.predict(model, files, policy=plan)
    model.model.use_confidence(tasks["segmentation-patch"].confidence)
    same = ready(model.model, "segmentation-patch")
    assert maqee.predict(same, files, policy=plan) == same.with_policy(load(plan).policy).predict(files)


def test_a_plan_for_something_else_is_refused(tmp_path: Path) -> None:
    plan = write_run_with_plan(tmp_path / "compressed", "classification")
    segmentation_model().save(tmp_path / "model")
    with pytest.raises(MaqeeError, match="The plan is for classification, the model for segmentation-iou"):
        load(tmp_path / "model", policy=plan)
