"""Splits never mix: what is held out is disjoint, complete, balanced and repeatable, and duplicates are found."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maqee.data import ArrayImages, ImageSet, Splits, find_overlaps, hold_out, open_data, warn_of_overlaps
from tests.data import makers
from tests.data.makers import image_set, names_of, pixels_of

CLASSES = 5


@st.composite
def labelled_sets(draw: st.DrawFn) -> tuple[ImageSet, int]:
    """A set with any mixture of classes, and how many images to hold out."""
    labels = draw(st.lists(st.integers(0, CLASSES - 1), min_size=2, max_size=60))
    count = draw(st.integers(1, len(labels) - 1))
    images = ArrayImages(torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), [str(i) for i in range(len(labels))])
    return ImageSet("any", images, torch.tensor(labels), tuple("abcde")), count


@given(given_set=labelled_sets(), seed=st.integers(0, 2**32))
def test_hold_out_is_disjoint_and_complete(given_set: tuple[ImageSet, int], seed: int) -> None:
    source, count = given_set
    kept, held = hold_out(source, count, seed, "kept", "held")
    assert (kept.name, held.name, len(held)) == ("kept", "held", count)
    assert sorted(names_of(kept) + names_of(held), key=int) == names_of(source)
    for part in (kept, held):  # each image keeps its label, and the order is that of the source
        indices = [int(name) for name in names_of(part)]
        assert indices == sorted(indices)
        assert torch.equal(part.targets, source.targets[torch.tensor(indices)])


@given(given_set=labelled_sets(), seed=st.integers(0, 2**32))
def test_hold_out_takes_each_class_in_proportion(given_set: tuple[ImageSet, int], seed: int) -> None:
    source, count = given_set
    _, held = hold_out(source, count, seed, "kept", "held")
    sizes, taken = Counter(source.targets.tolist()), Counter(held.targets.tolist())
    alone = sum(size == 1 for size in sizes.values())  # a class of one image stays whole as long as it can
    for label, size in sizes.items():
        assert abs(taken[label] - count * size / len(source)) <= 1 + alone


def test_hold_out_does_not_empty_a_small_class() -> None:
    targets = torch.tensor([0] * 1000 + [1] * 1000 + [2] * 60)
    source = ImageSet("any", ArrayImages(torch.zeros(2060, 1, 1, 1, dtype=torch.uint8)), targets, ("a", "b", "c"))
    _, held = hold_out(source, 206, 0, "kept", "held")
    assert torch.bincount(held.targets).tolist() == [100, 100, 6]


def test_hold_out_of_fewer_images_than_classes_takes_any_of_them() -> None:
    names = tuple(map(str, range(100)))
    source = ImageSet("any", ArrayImages(torch.zeros(100, 1, 1, 1, dtype=torch.uint8)), torch.arange(100), names)
    kept, held = hold_out(source, 20, 0, "kept", "held")
    assert held.targets.max() > 50  # not the first twenty classes
    assert sorted([*kept.targets.tolist(), *held.targets.tolist()]) == list(range(100))


def test_samples_of_imagenet_are_for_training_too_if_some_are_held_out(tmp_path: Path) -> None:
    makers.write_labelled_tar(tmp_path / "imagenet_samples_9.tar", makers.random_pixels(9))
    makers.write_labelled_tar(tmp_path / "imagenet_val_6.tar", makers.random_pixels(6))
    assert open_data("imagenet-tar", tmp_path).train is None
    splits = open_data("imagenet-tar", tmp_path, holdout=3)
    assert splits.calibration.targets.tolist() == [0, 1, 2]
    assert sorted(splits.training().targets.tolist()) == [0, 0, 1, 1, 2, 2]
    assert len(splits.test) == 6


@given(given_set=labelled_sets(), seed=st.integers(0, 2**32))
def test_hold_out_depends_on_the_seed_alone(given_set: tuple[ImageSet, int], seed: int) -> None:
    source, count = given_set
    first = hold_out(source, count, seed, "kept", "held")[1]
    torch.rand(3)  # the global stream must not matter
    assert names_of(first) == names_of(hold_out(source, count, seed, "kept", "held")[1])


def test_hold_out_differs_between_seeds() -> None:
    source = image_set(90)
    chosen = [tuple(hold_out(source, 30, seed, "kept", "held")[1].images.digests()) for seed in range(10)]
    assert len(set(chosen)) == 10


# --- overlaps --------------------------------------------------------------------------------------------------------


def _plant(target: ImageSet, source: ImageSet, pairs: dict[int, int]) -> ImageSet:
    """Copy images of `source` over those of `target`, at the places given as {place in target: place in source}."""
    pixels = pixels_of(target).clone()
    for place, origin in pairs.items():
        pixels[place] = pixels_of(source)[origin]
    return replace(target, images=ArrayImages(pixels))


@settings(max_examples=40)
@given(pairs=st.dictionaries(st.integers(0, 9), st.integers(0, 19), max_size=5))
def test_planted_duplicates_are_found_and_named(pairs: dict[int, int]) -> None:
    train, calibration = image_set(20, seed=1, name="train"), image_set(15, seed=2, name="calibration")
    test = _plant(image_set(10, seed=3, name="test"), train, pairs)
    found = find_overlaps(Splits(train, calibration, test))
    assert len(found) == bool(pairs)
    for overlap in found:
        assert (overlap.first, overlap.second) == ("train", "test")
        assert set(overlap.names) == {(f"image {origin}", f"image {place}") for place, origin in pairs.items()}


def test_every_pair_of_splits_is_compared() -> None:
    train = image_set(4, seed=1, name="train")
    calibration = _plant(image_set(4, seed=2, name="calibration"), train, {1: 0})
    test = _plant(image_set(4, seed=3, name="test"), calibration, {2: 3})
    found = {
        (overlap.first, overlap.second): overlap.names for overlap in find_overlaps(Splits(train, calibration, test))
    }
    assert found == {
        ("train", "calibration"): (("image 0", "image 1"),),
        ("calibration", "test"): (("image 3", "image 2"),),
    }
    without_train = find_overlaps(Splits(None, calibration, test))
    assert [(overlap.first, overlap.second) for overlap in without_train] == [("calibration", "test")]


def test_splits_of_the_same_name_are_still_told_apart() -> None:
    one, two = image_set(6, seed=1, name="same"), image_set(6, seed=2, name="same")
    assert find_overlaps(Splits(None, one, two)) == []
    assert find_overlaps(Splits(None, one, _plant(two, one, {5: 2})))[0].names == (("image 2", "image 5"),)


def test_copied_file_is_found_under_another_name(tmp_path: Path) -> None:
    root = makers.write_folder(tmp_path)
    for name in ("ant", "bee"):
        makers.write_images(root / "calibration" / name, 2, seed=len(name) + ord(name[0]))
    shutil.copy(root / "train" / "ant" / "02.png", root / "test" / "bee" / "copy.png")
    (found,) = find_overlaps(open_data("folder", root))
    assert found.names == ((str(root / "train/ant/02.png"), str(root / "test/bee/copy.png")),)


def test_overlaps_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    train = image_set(5, seed=1, name="train")
    test = _plant(image_set(5, seed=2, name="test"), train, {3: 1, 4: 2})
    with caplog.at_level(logging.WARNING, logger="maqee"):
        assert len(warn_of_overlaps(Splits(None, train, test))) == 1
    assert "2 images are in both train and test, the first is image 1 = image 3" in caplog.text


def test_bundled_digits_do_not_overlap(caplog: pytest.LogCaptureFixture) -> None:
    assert warn_of_overlaps(open_data("digits")) == []
    assert caplog.text == ""


def test_real_cifar100_has_its_known_duplicates(shared_data: Path) -> None:
    found = {
        (overlap.first, overlap.second): overlap.names for overlap in find_overlaps(makers.real_cifar100(shared_data))
    }
    of_train = found[("cifar100 train", "cifar100 test")]
    assert len(of_train) >= 1
    assert all(name.endswith(".png") for pair in of_train for name in pair)
    in_test = {name for pair, names in found.items() if pair[1] == "cifar100 test" for _, name in names}
    assert len(in_test) == 10  # of the 50,000 images that the training and calibration sets come from


def test_real_imagenet_calibration_is_not_in_the_test_set(shared_data: Path) -> None:
    assert find_overlaps(open_data("imagenet-tar", shared_data)) == []
