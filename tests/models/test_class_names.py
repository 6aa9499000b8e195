"""Class names come with a model, wherever its makers put them, and stay with it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, add_exits, load_network
from maqee.models import Backbone, load_backbone, save_backbone
from maqee.models.labels import has_names, read_class_names
from maqee.quant import quantize
from maqee.quant.artifact import load_quantized, save_quantized
from maqee.runtime import load_quantized_network
from tests.data.makers import assert_one_sentence
from tests.models.foreign import CLASSIFIERS, images, make

NAMES = ("wren", "auk", "ibis", "rhea", "kite")  # in no order
ID2LABEL = dict(enumerate(NAMES))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_transformers_folder_and_live_module(kind: str, tmp_path: Path) -> None:
    theirs = make(kind, id2label=ID2LABEL)
    assert load_backbone(theirs).classes == NAMES
    theirs.save_pretrained(tmp_path)
    assert load_backbone(tmp_path).classes == NAMES
    assert load_backbone(tmp_path / "model.safetensors").classes == NAMES  # config.json lies beside it
    assert load_backbone(tmp_path, num_classes=5).classes == NAMES
    assert load_backbone(tmp_path, image_size=64).classes == NAMES


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_made_up_names_are_none(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    theirs = make(kind)
    theirs.save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert load_backbone(theirs).classes == load_backbone(tmp_path).classes == ()
    assert "id2label" not in caplog.text


def test_a_new_classifier_has_no_names(tmp_path: Path) -> None:
    make("vit", id2label=ID2LABEL).save_pretrained(tmp_path)
    assert load_backbone(tmp_path, num_classes=6).classes == ()
    assert load_backbone(tmp_path, num_classes=0).classes == ()
    assert load_backbone(tmp_path, detection_tokens=4).classes == ()  # as many classes, but a fresh head
    assert load_backbone("test-vit").classes == ()


def test_a_bare_model_has_no_classes_to_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make("vit-bare", id2label=ID2LABEL).save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert load_backbone(tmp_path).classes == ()
    assert "id2label" not in caplog.text


def test_a_classifier_that_was_replaced_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    """As people do it: the names are those of the old classifier, and must not be taken for the new one's."""
    theirs = make("vit", id2label=ID2LABEL)
    theirs.classifier = torch.nn.Linear(32, 7)
    with caplog.at_level(logging.WARNING):
        assert load_backbone(theirs).classes == ()
    assert "id2label does not name the 7 classes one by one" in caplog.text


@given(order=st.permutations(range(12)))
def test_numbers_decide_the_order_not_the_file(order: list[int]) -> None:
    """JSON has text for keys, and "10" comes before "2" in it."""
    shuffled = {str(number): f"bird {number}" for number in order}
    assert read_class_names({"id2label": shuffled}, 12, "f") == tuple(f"bird {number}" for number in range(12))
    assert read_class_names({"id2label": dict(enumerate(order))}, 12, "f") == tuple(map(str, order))  # numbers as names


@pytest.mark.parametrize(
    "names",
    [
        {"0": "a", "2": "b", "3": "c"},
        {"1": "a", "2": "b", "3": "c"},
        {"0": "a", "1": "b"},
        {"0": "a", "1": "b", "2": "c", "3": "d"},
        {"0": "a", "1": "b", "2": None},
        {"0": "a", "1": "b", "2": ["c"]},
        {"a": 0, "b": 1, "c": 2},
        "abc",
        7,
    ],
)
def test_names_that_do_not_fit_are_not_used(names: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_class_names({"id2label": names}, 3, "config.json") == ()
    assert "config.json: id2label does not name the 3 classes one by one" in caplog.text


def test_two_classes_may_have_one_name() -> None:
    """ImageNet's cranes, and the gaps of COCO."""
    assert read_class_names({"id2label": {"0": "crane", "1": "N/A", "2": "crane"}}, 3, "f") == ("crane", "N/A", "crane")


# --- timm ------------------------------------------------------------------------------------------------------------

CODES = ["n02012849", "n01440764", "n03126707"]
MEANT = {"n01440764": "tench, Tinca tinca", "n02012849": "crane", "n03126707": "crane"}
DESCRIBED = ("crane, n02012849", "tench, Tinca tinca, n01440764", "crane, n03126707")


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"label_names": ["wren", "auk", "ibis"]}, ("wren", "auk", "ibis")),
        ({"pretrained_cfg": {"label_names": ["wren", "auk", "ibis"]}}, ("wren", "auk", "ibis")),
        ({"label_names": {"2": "ibis", "0": "wren", "1": "auk"}}, ("wren", "auk", "ibis")),
        ({"label_names": CODES}, tuple(CODES)),
        ({"label_names": CODES, "label_descriptions": MEANT}, DESCRIBED),
        ({"label_names": CODES, "label_descriptions": [MEANT[code] for code in CODES]}, DESCRIBED),
        ({"pretrained_cfg": {"label_names": CODES, "label_descriptions": MEANT}}, DESCRIBED),
        ({"label_names": CODES, "label_descriptions": {"n01440764": "tench"}},
         ("n02012849", "tench, n01440764", "n03126707")),
        ({"label_names": CODES, "label_descriptions": ["too", "short"]}, tuple(CODES)),
        ({"label_names": ["wren", "auk", "ibis"], "label_descriptions": {"auk": "A bird, or a unit"}},
         ("wren", "auk", "ibis")),
        ({"label_names": None, "pretrained_cfg": {"label_names": None}}, ()),
        ({}, ()),
    ],
)  # fmt: skip
def test_timm(config: dict[str, Any], names: tuple[str, ...]) -> None:
    assert read_class_names(config, 3, "config.json") == names


def test_timm_names_of_another_number(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_class_names({"label_names": CODES}, 4, "config.json") == ()
    assert "config.json: label_names does not name the 4 classes" in caplog.text


def test_live_timm_module() -> None:
    theirs = make("vit")  # stands in for one: what counts is the attribute
    theirs.pretrained_cfg = {"label_names": list(NAMES)}
    theirs.config.id2label = {}
    assert load_backbone(theirs).classes == NAMES


# --- our own files ---------------------------------------------------------------------------------------------------


def named(preset: str = "test-vit") -> Backbone:
    model = load_backbone(preset, num_classes=5)
    model.classes = NAMES
    return model


def test_backbone_folder(tmp_path: Path) -> None:
    save_backbone(named(), tmp_path)
    assert load_backbone(tmp_path).classes == NAMES
    assert load_backbone(tmp_path, num_classes=6).classes == ()


def test_early_exit_folder(tmp_path: Path) -> None:
    add_exits(named(), "mlp").save(tmp_path)
    assert EarlyExitModel.load(tmp_path).backbone.classes == NAMES
    assert load_backbone(tmp_path).classes == NAMES


@pytest.mark.parametrize("exits", [True, False])
def test_quantized_folder(exits: bool, tmp_path: Path) -> None:
    model = add_exits(named(), "mlp") if exits else named()
    save_quantized(quantize(model, images(32), "rtn"), tmp_path)
    again = load_quantized_network(tmp_path) if exits else load_quantized(tmp_path)
    found = again.model.backbone if isinstance(again.model, EarlyExitModel) else again.model
    assert isinstance(found, Backbone)
    assert found.classes == NAMES


def test_folders_of_older_versions_have_no_names(tmp_path: Path) -> None:
    model = load_backbone("test-vit")
    save_backbone(model, tmp_path / "plain")
    add_exits(model, "mlp").save(tmp_path / "exits")
    save_quantized(quantize(model, images(32), "rtn"), tmp_path / "quantized")
    for folder in tmp_path.iterdir():
        assert "classes" not in json.loads((folder / "config.json").read_text())
    assert load_backbone(tmp_path / "plain").classes == load_backbone(tmp_path / "exits").classes == ()
    assert load_quantized(tmp_path / "quantized").model.classes == ()


@pytest.mark.parametrize("kind", ["plain", "exits", "quantized"])
@pytest.mark.parametrize(
    ("classes", "hint"),
    [
        (["a", "b"], "has 2 names, the model has 5 classes"),
        (["a", "b", "c", "d", 5], "classes"),
        ("abcde", "classes"),
        ({"0": "a"}, "classes"),
    ],
)
def test_damaged_names_are_an_error(kind: str, classes: Any, hint: str, tmp_path: Path) -> None:
    if kind == "plain":
        save_backbone(named(), tmp_path)
    elif kind == "exits":
        add_exits(named(), "mlp").save(tmp_path)
    else:
        save_quantized(quantize(named(), images(32), "rtn"), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": classes}))
    with pytest.raises(MaqeeError) as caught:
        _ = load_quantized(tmp_path) if kind == "quantized" else load_network(tmp_path)
    assert_one_sentence(str(caught.value))
    assert str(path) in str(caught.value)
    assert hint in str(caught.value)


def test_has_names() -> None:
    assert has_names(("LABEL_0", "cat"))
    assert has_names(("0", "1"))
    assert not has_names(("LABEL_0", "LABEL_1"))
    assert not has_names(("class 0", "class 1"))
    assert not has_names(())
