"""Classes of data and model are matched by name, whatever order either has them in."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from maqee.boxes import PADDING
from maqee.data import ArrayImages, FileEntry, ImageSet, Splits, open_data
from maqee.data.box_targets import BOXES, pad_boxes
from maqee.data.classes import align_splits, find_classes, same_classes
from maqee.data.mask_targets import MASKS, MaskFiles
from maqee.data.pairs import MaskCode, Pair
from maqee.data.targets import LABELS, TargetKind
from maqee.errors import MaqeeError
from maqee.models import Backbone, Preprocessing, ViTConfig
from maqee.models.load import build_backbone
from maqee.tasks.pixels import IGNORE
from tests.data.makers import assert_refused

ANIMALS = ("ant", "bee", "cat", "dog", "eel")
COUNTS = st.integers(2, 6)


def backbone(count: int, classes: tuple[str, ...] = ()) -> Backbone:
    """The smallest model with so many classes."""
    config = ViTConfig(
        image_size=(2, 2), patch_size=2, channels=1, dim=1, depth=1, heads=1, mlp_dim=1, num_classes=count
    )
    model = build_backbone(config)
    model.classes = classes
    return model


def splits(classes: tuple[str, ...], targets: Tensor | None = None, kind: TargetKind = LABELS) -> Splits:
    """The same images three times: what matters here are the labels."""
    labels = torch.arange(len(classes)) if targets is None else targets
    images = ArrayImages(torch.zeros(len(labels), 3, 4, 4, dtype=torch.uint8))
    data = ImageSet("pets", images, labels, classes, kind)
    return Splits(data, data, data)


@given(data=st.data(), count=COUNTS)
def test_any_order_gives_the_same_accuracy(data: st.DataObject, count: int) -> None:
    """Answers of a model whose classes are permuted, scored by number after the alignment, score as before it."""
    names = tuple(f"name {number} of many" for number in range(count))
    labels = torch.tensor(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=8)))
    answers = torch.tensor(data.draw(st.lists(st.integers(0, count - 1), min_size=len(labels), max_size=len(labels))))
    order = data.draw(st.permutations(range(count)))  # logit i of the model is class order[i] of the data
    model = backbone(count, tuple(names[place] for place in order))
    aligned = align_splits(splits(names, labels), model)
    place_of = torch.tensor(order).argsort()
    for part in (aligned.train, aligned.calibration, aligned.test):
        assert part is not None
        assert torch.equal(place_of[answers] == part.targets, answers == labels)
        assert [part.classes[label] for label in part.targets] == [names[label] for label in labels]


def test_classes_in_the_same_order_stay_untouched() -> None:
    given_sets = splits(ANIMALS)
    aligned = align_splits(given_sets, backbone(5, ANIMALS))
    assert aligned.test is given_sets.test


def test_a_data_set_may_have_fewer_classes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        aligned = align_splits(splits(("cat", "eel")), backbone(5, ANIMALS[::-1]))
    assert aligned.test.targets.tolist() == [2, 0]
    assert aligned.test.classes == ANIMALS[::-1]
    assert "pets lacks 3 of the model's 5 classes" in caplog.text


def test_no_training_images() -> None:
    only = splits(ANIMALS)
    assert align_splits(replace(only, train=None), backbone(5, ANIMALS[::-1])).train is None


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "names", "table"),
    [
        (["sea_lion", "cat"], ["Cat", "Sea lion"], [1, 0]),
        (["Sea-Lion"], ["dog", "sea lion"], [1]),
        (["cafe\u0301"], ["x", "caf\u00e9"], [1]),  # a Mac writes accents as letters of their own
        (["tench"], ["goldfish, Carassius auratus", "tench, Tinca tinca"], [1]),
        (["Tinca_tinca"], ["goldfish, Carassius auratus", "tench, Tinca tinca"], [1]),
        (["n01440764"], ["goldfish, n01443537", "tench, n01440764"], [1]),
        (["seal", "sea lion"], ["sea lion, seal", "seal"], [1, 0]),  # the whole name comes before a part
        (["maillot", "cat"], ["cat", "maillot", "maillot, tank suit"], [1, 0]),
        (["Cardigan"], ["cardigan", "Cardigan, Cardigan Welsh corgi"], [1]),  # the dog, not the garment
        (["cardigan", "Cardigan"], ["Cardigan", "cardigan"], [1, 0]),
    ],
)
def test_names_that_mean_the_same(wanted: list[str], names: list[str], table: list[int]) -> None:
    assert find_classes(wanted, names, "pets") == table


def test_two_classes_of_one_name_are_told_apart_by_their_numbers() -> None:
    """ImageNet has two cranes and two maillots; in the customary order they are where they are."""
    names = ["cat", "crane", "maillot", "maillot, tank suit", "crane", "dog"]
    assert find_classes(["cat", "crane", "maillot", "maillot", "crane", "dog"], names, "i") == [0, 1, 2, 3, 4, 5]
    assert_refused(lambda: find_classes(["crane", "cat"], names, "i"), "i: 1 of 2 classes", "'crane'")
    assert_refused(lambda: find_classes(["cat", "cat"], ["dog", "cat"], "i"), "'cat'")


def test_two_spellings_of_one_class_are_refused() -> None:
    names = ["tench, Tinca tinca", "goldfish"]
    assert_refused(lambda: find_classes(["tench", "tinca tinca"], names, "fish"), "fish has two classes", "'tench'")


def test_unknown_names_are_refused_and_said() -> None:
    model = backbone(5, ANIMALS)
    assert_refused(
        lambda: align_splits(splits(("fox", "bee", "gnu", "hen", "ibex", "jay")), model),
        "pets: 5 of 6 classes are unknown to the model ('fox', 'gnu', 'hen', ...)",
        "'ant', 'bee', 'cat', ...",
    )
    assert not same_classes(model, splits(("fox", "bee")).test)
    assert same_classes(model, splits(("eel", "bee")).test)


def test_cocos_gaps_are_no_classes() -> None:
    """Its ids have gaps, for which our reader and published detectors have names of their own."""
    data = ("(no class 0)", "person", "bicycle", "(no class 3)", "car")
    assert find_classes(data, ["N/A", "person", "bicycle", "N/A", "car"], "coco") == [0, 1, 2, 3, 4]
    table = find_classes(data, ["car", "bicycle", "person"], "coco")
    assert [table[label] for label in (1, 2, 4)] == [2, 1, 0]


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "model", "words"),
    [
        (ANIMALS, (), "The model has no class names: the classes of pets are matched by their numbers"),
        (ANIMALS, tuple(f"LABEL_{number}" for number in range(5)), "The model has no class names"),
        (tuple(f"class {number}" for number in range(5)), ANIMALS, "pets has no class names"),
        (tuple(f"n0000000{number}" for number in range(5)), ANIMALS, "'n00000000', the model its own 'ant'"),
        (ANIMALS, tuple(f"n0000000{number}" for number in range(5)), "'ant', the model its own 'n00000000'"),
    ],
)
def test_without_names_numbers_must_do(
    data: tuple[str, ...], model: tuple[str, ...], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    given_sets = splits(data)
    with caplog.at_level(logging.WARNING):
        assert align_splits(given_sets, backbone(5, model)) is given_sets
    assert words in caplog.text
    assert same_classes(backbone(5, model), given_sets.test)
    assert not same_classes(backbone(6), given_sets.test)


def test_numbers_need_as_many_classes() -> None:
    assert_refused(lambda: align_splits(splits(ANIMALS), backbone(6)), "The model has 6 classes and pets has 5")


def test_nothing_to_say_where_nobody_has_names(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        align_splits(splits(tuple(f"class {number}" for number in range(5))), backbone(5))
    assert not caplog.text


# --- targets ---------------------------------------------------------------------------------------------------------


@given(data=st.data(), count=COUNTS)
def test_labels(data: st.DataObject, count: int) -> None:
    table = torch.tensor(data.draw(st.permutations(range(count))))
    kind, moved = LABELS.relabel(torch.arange(count), table)
    assert kind is LABELS
    assert moved.tolist() == table.tolist()


@given(data=st.data(), count=COUNTS)
def test_masks_keep_what_does_not_count(data: st.DataObject, count: int) -> None:
    table = torch.tensor(data.draw(st.permutations(range(count))))
    pixels = st.one_of(st.integers(0, count - 1), st.just(IGNORE))
    mask = torch.tensor(data.draw(st.lists(pixels, min_size=6, max_size=6)), dtype=torch.uint8).reshape(1, 2, 3)
    _, moved = MASKS.relabel(mask, table)
    assert moved.dtype == torch.uint8
    for before, after in zip(mask.flatten().tolist(), moved.flatten().tolist(), strict=True):
        assert after == (IGNORE if before == IGNORE else int(table[before]))


def test_masks_have_no_room_for_large_numbers() -> None:
    mask = torch.zeros(1, 2, 2, dtype=torch.uint8)
    assert_refused(lambda: MASKS.relabel(mask, torch.tensor([IGNORE])), "below 255", "the number 255")


@given(data=st.data(), count=COUNTS)
def test_boxes_keep_their_place_and_padding(data: st.DataObject, count: int) -> None:
    table = torch.tensor(data.draw(st.permutations(range(count))))
    labels = data.draw(st.lists(st.integers(0, count - 1), max_size=3))
    rows = [(float(label), 0.5, 0.25, 0.125, 0.5) for label in labels]
    boxes = pad_boxes([rows, [(0.0, 0.5, 0.5, 1.0, 1.0)]])
    _, moved = BOXES.relabel(boxes, table)
    assert torch.equal(moved[..., 1:], boxes[..., 1:])
    assert moved[0, : len(labels), 0].tolist() == [int(table[label]) for label in labels]
    assert (moved[boxes[..., 0] == PADDING][:, 0] == PADDING).all()


def test_mask_files_are_relabelled_when_they_are_read(tmp_path: Path) -> None:
    numbers = np.array([[1, 2], [3, 0]], dtype=np.uint8)  # 0 does not count
    Image.fromarray(numbers).save(tmp_path / "mask.png")
    Image.new("RGB", (2, 2)).save(tmp_path / "image.png")
    image, mask = (FileEntry(name, tmp_path / name) for name in ("image.png", "mask.png"))
    files = MaskFiles([Pair(image, mask)], MaskCode(first=1, classes=3, ignored=(0,)))
    row, size = torch.zeros(1, dtype=torch.long), Preprocessing(image_size=(2, 2))
    assert files.load(row, size).tolist() == [[[0, 1], [2, IGNORE]]]
    once, row = files.relabel(row, torch.tensor([2, 0, 1]))
    assert once.load(row, size).tolist() == [[[2, 0], [1, IGNORE]]]
    twice, row = once.relabel(row, torch.tensor([5, 7, 9]))
    assert twice.load(row, size).tolist() == [[[9, 5], [7, IGNORE]]]
    assert files.load(row, size).tolist() == [[[0, 1], [2, IGNORE]]]  # the original is as it was


@pytest.mark.parametrize("kind", ["masks", "boxes"])
def test_every_kind_of_target_is_aligned(kind: str) -> None:
    classes, model = ("bee", "cat"), backbone(3, ("cat", "ant", "bee"))
    if kind == "masks":
        aligned = align_splits(splits(classes, torch.tensor([[[0, 1], [IGNORE, 1]]], dtype=torch.uint8), MASKS), model)
        assert aligned.test.targets.tolist() == [[[2, 0], [IGNORE, 0]]]
    else:
        rows = [(0.0, 0.5, 0.5, 1.0, 1.0), (1.0, 0.5, 0.5, 0.5, 0.5)]
        aligned = align_splits(splits(classes, pad_boxes([rows]), BOXES), model)
        assert aligned.test.targets[0, :, 0].tolist() == [2.0, 0.0]


def test_real_imagenet_knows_its_own_classes(shared_data: Path) -> None:
    """Two cranes and two maillots among them; and in another order only these four cannot be told apart."""
    names = open_data("imagenet-tar", shared_data).test.classes
    assert find_classes(names, names, "imagenet") == list(range(1000))
    with pytest.raises(MaqeeError, match=r"imagenet: 4 of 1000 classes are unknown .*'(crane|maillot)'"):
        find_classes(names[::-1], names, "imagenet")
