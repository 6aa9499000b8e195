"""Training begins with a classifier that belongs to the data's classes: the model's own where it knows them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from maqee.data import ArrayImages, ImageSet, Splits
from maqee.data.box_targets import BOXES, pad_boxes
from maqee.errors import MaqeeError
from maqee.models import Backbone, load_backbone, save_backbone
from maqee.training.recipe import ModelSection
from maqee.training.start import load_start
from maqee.training.trainer import run_recipe
from tests.coloured import SORTED, coloured_recipe, save_coloured_vit, write_colours

pytestmark = pytest.mark.trains

SEED = 3


def pictures(*classes: str) -> Splits:
    """One picture a class, three times."""
    pixels = torch.zeros(len(classes), 3, 32, 32, dtype=torch.uint8)
    data = ImageSet("birds", ArrayImages(pixels), torch.arange(len(classes)), classes)
    return Splits(data, data, data)


def start(source: Path | str, splits: Splits, **more: int) -> tuple[Backbone, Splits]:
    torch.manual_seed(SEED)
    return load_start(ModelSection(source=str(source), **more), splits, SEED)


def assert_same_weights(one: Backbone, other: Backbone) -> None:
    assert one.config == other.config
    for name, tensor in other.state_dict().items():
        assert torch.equal(one.state_dict()[name], tensor), name


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A model of three birds."""
    model = load_backbone("test-vit", num_classes=3)
    model.classes = ("wren", "auk", "ibis")
    save_backbone(model, tmp_path)
    return tmp_path


def test_a_classifier_that_knows_the_classes_is_kept(named: Path) -> None:
    backbone, splits = start(named, pictures("auk", "ibis", "wren"))
    assert_same_weights(backbone, load_backbone(named))
    assert backbone.classes == splits.test.classes == ("wren", "auk", "ibis")
    assert splits.training().targets.tolist() == [1, 2, 0]


def test_also_for_some_of_its_classes(named: Path) -> None:
    backbone, splits = start(named, pictures("ibis", "wren"))
    assert backbone.config.num_classes == 3
    assert splits.calibration.targets.tolist() == [2, 0]


def test_other_classes_get_a_new_one(named: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also where there are as many: the old one would answer with other birds."""
    for classes in (("auk", "kite", "rhea"), ("auk", "kite")):
        given = pictures(*classes)
        with caplog.at_level(logging.WARNING):
            backbone, splits = start(named, given)
        assert f"knows other classes than birds: new classifier for {len(classes)} classes" in caplog.text
        assert splits is given
        assert backbone.classes == classes
        old, new = load_backbone(named).state_dict(), backbone.state_dict()
        assert new["head.linear.weight"].shape[0] == len(classes)
        assert not torch.equal(new["head.linear.weight"][:2], old["head.linear.weight"][:2])
        assert all(torch.equal(tensor, old[name]) for name, tensor in new.items() if not name.startswith("head."))


def test_random_numbers_are_those_of_loading_with_a_new_classifier(named: Path) -> None:
    """So that a recipe gives the weights that it always gave."""
    backbone, _ = start(named, pictures("a", "b", "c", "d"), image_size=64)
    torch.manual_seed(SEED)
    assert_same_weights(backbone, load_backbone(named, 4, 64))


@pytest.mark.parametrize("classes", [4, 10])
def test_a_preset_has_nothing_to_keep(classes: int, caplog: pytest.LogCaptureFixture) -> None:
    given = pictures(*(f"bird of kind {number}" for number in range(classes)))
    with caplog.at_level(logging.WARNING):
        backbone, splits = start("test-vit", given)
    assert not caplog.text
    torch.manual_seed(SEED)
    assert_same_weights(backbone, load_backbone("test-vit", classes))
    assert backbone.classes == given.test.classes
    assert splits is given


def test_numbers_are_kept_where_there_are_no_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_backbone(load_backbone("test-vit", num_classes=3), tmp_path)
    given = pictures("auk", "ibis", "wren")
    with caplog.at_level(logging.WARNING):
        backbone, splits = start(tmp_path, given)
    assert "The model has no class names" in caplog.text
    assert splits is given
    assert backbone.classes == ("auk", "ibis", "wren")
    assert_same_weights(backbone, load_backbone(tmp_path))


def test_data_without_names_take_the_models(named: Path) -> None:
    backbone, _ = start(named, pictures("class 0", "class 1", "class 2"))
    assert backbone.classes == ("wren", "auk", "ibis")
    assert start("test-vit", pictures("class 0", "class 1"))[0].classes == ()


def test_a_detector_keeps_its_classes(tmp_path: Path) -> None:
    model = load_backbone("test-vit", num_classes=3, detection_tokens=4)
    model.classes = ("wren", "auk", "ibis")
    save_backbone(model, tmp_path)
    boxes = pad_boxes([[(0.0, 0.5, 0.5, 1.0, 1.0)], [(1.0, 0.5, 0.5, 1.0, 1.0)]])
    plain = pictures("auk", "ibis").test
    data = replace(plain, targets=boxes, kind=BOXES)
    backbone, splits = start(tmp_path, Splits(data, data, data), detection_tokens=4)
    assert_same_weights(backbone, load_backbone(tmp_path))
    assert splits.test.targets[:, 0, 0].tolist() == [1.0, 2.0]


def test_a_run_that_an_older_version_began(tmp_path: Path) -> None:
    """It goes on where numbers and names agree, and its later stages get names; else it must begin anew."""
    data = write_colours(tmp_path / "data")
    stage = {"epochs": 1, "batch_size": 8, "lr": 1e-7}
    stages = [{"kind": "finetune", **stage}, {"kind": "classifier-wise", **stage}]
    for name, order in (("same", SORTED), ("other", SORTED[::-1])):
        out, model = tmp_path / name, save_coloured_vit(tmp_path / f"{name}-model", order)
        recipe = coloured_recipe(model, data, stages=stages)
        run_recipe(recipe, out, device="cpu")
        config = out / "1-finetune" / "config.json"
        values = json.loads(config.read_text())
        del values["classes"]
        config.write_text(json.dumps(values))
        (out / "2-classifier-wise" / "stage.json").unlink()
        if order == SORTED:
            run_recipe(recipe, out, device="cpu")
            assert load_backbone(out / "2-classifier-wise").classes == SORTED
        else:
            with pytest.raises(MaqeeError, match="older maqee, which did not match classes by name"):
                run_recipe(recipe, out, device="cpu")
