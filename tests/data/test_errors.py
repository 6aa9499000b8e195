"""Every mistake a user can make with folders, labels, splits and batches is named in one sentence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from maqee.data import (
    ArrayImages,
    Augmentation,
    FileEntry,
    FileImages,
    ImageSet,
    TrainBatches,
    hold_out,
    open_data,
)
from maqee.models.preprocessing import Preprocessing
from tests.data import makers

CASES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {}
Case = Callable[[Path], object]


def says(*fragments: str) -> Callable[[Case], Case]:
    """File a case: a function that must raise, and what its message must contain."""

    def add(case: Case) -> Case:
        CASES[case.__name__] = (case, fragments)
        return case

    return add


# --- names and paths -------------------------------------------------------------------------------------------------


@says("'cifar10'", "did you mean cifar100?")
def unknown_data_set(tmp_path: Path) -> object:
    return open_data("cifar10")


@says("'mnist'", "choose one of ade20k", "cifar100", "imagenet-tar.")
def unknown_data_set_unlike_any_other(tmp_path: Path) -> object:
    return open_data("mnist")


@says("needs a path", "train/CLASS")
def no_path(tmp_path: Path) -> object:
    return open_data("folder")


@says("nowhere", "does not exist")
def missing_path(tmp_path: Path) -> object:
    return open_data("cifar100", tmp_path / "nowhere")


# --- folders ---------------------------------------------------------------------------------------------------------


@says("empty_folder", "'train'", "'test'")
def empty_folder(tmp_path: Path) -> object:
    return open_data("folder", tmp_path)


@says("list.txt", "must hold a folder 'train'")
def folder_that_is_a_file(tmp_path: Path) -> object:
    (tmp_path / "list.txt").write_text("train")
    return open_data("folder", tmp_path / "list.txt")


@says("train holds no class folders")
def training_folder_without_classes(tmp_path: Path) -> object:
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    return open_data("folder", tmp_path)


@says("test/cow holds no images")
def class_folder_without_images(tmp_path: Path) -> object:
    root = makers.write_folder(tmp_path)
    makers.write_images(root / "train" / "cow", 2)
    (root / "test" / "cow").mkdir()
    return open_data("folder", root)


@says("test/bee holds no images")
def class_missing_from_the_test_folder(tmp_path: Path) -> object:
    root = makers.write_folder(tmp_path)
    shutil.rmtree(root / "test" / "bee")
    return open_data("folder", root)


@says("test has 2 classes that the training folder lacks", "the first is cow")
def classes_unknown_to_training(tmp_path: Path) -> object:
    root = makers.write_folder(tmp_path)
    makers.write_images(root / "test" / "yak", 1)
    makers.write_images(root / "test" / "cow", 1)
    return open_data("folder", root)


# --- images ----------------------------------------------------------------------------------------------------------


def _load_all(source: ImageSet) -> object:
    return makers.pixels_of(source, 10)


@says("3 of 8 images cannot be decoded", "test/ant/01.png")
def corrupt_images_in_a_folder(tmp_path: Path) -> object:
    root = makers.write_folder(tmp_path)
    whole = (root / "test" / "ant" / "01.png").read_bytes()
    (root / "test" / "ant" / "01.png").write_bytes(whole[:-30])
    (root / "test" / "ant" / "03.png").write_bytes(b"")
    (root / "test" / "bee" / "02.png").write_bytes(b"GIF89a and then nothing")
    return _load_all(open_data("folder", root).test)


@says("1 of 2 images cannot be decoded", "gone.png")
def image_that_was_deleted(tmp_path: Path) -> object:
    makers.write_images(tmp_path, 1)
    entries = [FileEntry(path.name, path) for path in (tmp_path / "00.png", tmp_path / "gone.png")]
    return FileImages(entries).load([0, 1], Preprocessing(image_size=(8, 8)))


# --- labels ----------------------------------------------------------------------------------------------------------


@says("noise: 2 labels are outside 0..2", "the first is 3 of image 4")
def label_too_large(tmp_path: Path) -> object:
    return replace(makers.image_set(6), targets=torch.tensor([0, 1, 2, 0, 3, 9]))


@says("noise: 1 labels are outside 0..2", "-1 of image 0")
def negative_label(tmp_path: Path) -> object:
    return replace(makers.image_set(2), targets=torch.tensor([-1, 0]))


@says("noise has 3 images and 2 labels")
def too_few_labels(tmp_path: Path) -> object:
    return replace(makers.image_set(3), targets=torch.tensor([0, 1]))


@says("nothing holds no images")
def no_images(tmp_path: Path) -> object:
    images = ArrayImages(torch.zeros(0, 3, 8, 8, dtype=torch.uint8))
    return ImageSet("nothing", images, torch.zeros(0, dtype=torch.int64), ("a",))


# --- splits and batches ----------------------------------------------------------------------------------------------


@says("Cannot hold 9 of the 9 images of noise out")
def holdout_of_everything(tmp_path: Path) -> object:
    return hold_out(makers.image_set(9), 9, 0, "kept", "held")


@says("Cannot hold 2000 of the 1437 images", "digits")
def holdout_too_large(tmp_path: Path) -> object:
    return open_data("digits", holdout=2000)


@says("Cannot hold 0 of the 1437 images", "digits")
def holdout_of_nothing(tmp_path: Path) -> object:
    return open_data("digits", holdout=0)


@says("Cannot hold 0 of the 8 images", "train")
def holdout_of_nothing_from_a_folder(tmp_path: Path) -> object:
    return open_data("folder", makers.write_folder(tmp_path), holdout=0)


@says("'imagenet_val_6'", "no training images")
def training_where_there_is_none(tmp_path: Path) -> object:
    makers.write_labelled_tar(tmp_path / "imagenet_samples_3.tar", makers.random_pixels(3))
    makers.write_labelled_tar(tmp_path / "imagenet_val_6.tar", makers.random_pixels(6))
    return open_data("imagenet-tar", tmp_path).training()


def _batches(batch_size: int, world: int = 1) -> TrainBatches:
    preprocessing = Preprocessing(image_size=(8, 8))
    return TrainBatches(makers.image_set(10), preprocessing, Augmentation(), batch_size, seed=0, world=world)


@says("noise has 10 images", "one batch of 11")
def batch_larger_than_the_set(tmp_path: Path) -> object:
    return _batches(11)


@says("batch_size 9", "2 processes")
def batch_not_divisible(tmp_path: Path) -> object:
    return _batches(9, world=2)


@says("batch_size 0", "less than one")
def batch_of_nothing(tmp_path: Path) -> object:
    return _batches(0)


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_user_error(name: str, tmp_path: Path) -> None:
    case, fragments = CASES[name]
    folder = tmp_path / name
    folder.mkdir()
    makers.assert_refused(lambda: case(folder), *fragments)
