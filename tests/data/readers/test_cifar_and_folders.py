"""Every reader delivers the images, labels, names and classes that were written."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from maqee.data import ArrayImages, FileEntry, FileImages, ImageSet, Splits, open_data
from maqee.data.readers import readers
from maqee.data.readers.imagenet import read_labelled_tar
from maqee.models.preprocessing import Preprocessing
from tests.data import makers
from tests.data.makers import Cifar, names_of, pixels_of


def test_every_reader_is_registered() -> None:
    everything = ["ade20k", "bccd", "camvid", "cifar100", "coco", "digits", "folder", "imagenet-tar"]
    assert readers.names() == everything


# --- digits ----------------------------------------------------------------------------------------------------------


def test_digits_are_complete_and_balanced() -> None:
    splits = open_data("digits")
    assert [len(part) for part in (splits.training(), splits.calibration, splits.test)] == [1077, 360, 360]
    for part in (splits.calibration, splits.test):  # the ten digits occur 174 to 183 times
        assert set(torch.bincount(part.targets).tolist()) <= {35, 36, 37}
    pixels = pixels_of(splits.test)
    assert pixels.shape == (360, 1, 8, 8)
    assert pixels.dtype == torch.uint8
    assert (int(pixels.min()), int(pixels.max())) == (0, 255)


def test_digits_seed_moves_calibration_but_never_the_test_set() -> None:
    one, two = open_data("digits", seed=1), open_data("digits", seed=2)
    assert torch.equal(pixels_of(one.test), pixels_of(two.test))
    assert not torch.equal(pixels_of(one.calibration), pixels_of(two.calibration))
    assert torch.equal(pixels_of(one.calibration), pixels_of(open_data("digits", seed=1).calibration))


def test_digits_holdout_sets_the_calibration_count() -> None:
    splits = open_data("digits", holdout=50)
    assert (len(splits.calibration), len(splits.training())) == (50, 1387)


# --- folder ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test_name", ["test", "val", "validation"])
def test_folder_reads_classes_in_sorted_order(tmp_path: Path, test_name: str) -> None:
    splits = open_data("folder", makers.write_folder(tmp_path, test_name), holdout=2)
    assert splits.test.classes == ("ant", "bee")
    assert splits.test.targets.tolist() == [0] * 4 + [1] * 4
    expected = np.concatenate([makers.random_pixels(4, 10, seed=3), makers.random_pixels(4, 10, seed=2)])
    assert torch.equal(pixels_of(splits.test, 10), torch.from_numpy(expected))
    assert splits.test.images.name(0) == str(tmp_path / test_name / "ant" / "00.png")


def test_folder_holds_a_tenth_out_unless_told(tmp_path: Path) -> None:
    root = makers.write_folder(tmp_path, count=10)
    assert len(open_data("folder", root).calibration) == 2
    assert len(open_data("folder", root, holdout=6).calibration) == 6


def test_folder_prefers_a_calibration_folder(tmp_path: Path) -> None:
    root = makers.write_folder(tmp_path)
    for name in ("ant", "bee"):
        makers.write_images(root / "calibration" / name, 3)
    splits = open_data("folder", root)
    assert (len(splits.training()), len(splits.calibration)) == (8, 6)
    assert all("calibration" in name for name in names_of(splits.calibration))


def test_folder_finds_nested_and_upper_case_files_and_ignores_others(tmp_path: Path) -> None:
    root = makers.write_folder(tmp_path)
    (root / "test" / "ant" / "notes.txt").write_text("not an image")
    (root / "test" / "ant" / "thumbs.png").mkdir()
    makers.write_images(root / "test" / "ant" / "deeper", 1)
    (root / "test" / "bee" / "00.png").rename(root / "test" / "bee" / "00.PNG")
    assert torch.bincount(open_data("folder", root).test.targets).tolist() == [5, 4]


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_files_of_every_colour_mode_become_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "image.tif"
    grey = Image.new("L", (6, 6), 255)
    grey.convert(mode).save(path)
    loaded = FileImages([FileEntry("image", path)]).load([0], Preprocessing(image_size=(6, 6)))
    assert torch.equal(loaded, torch.full((1, 3, 6, 6), 255, dtype=torch.uint8))


def test_sixteen_bit_grey_is_scaled_and_not_clipped(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((6, 6), 40000, dtype=np.uint16)).save(path)
    loaded = FileImages([FileEntry("image", path)]).load([0], Preprocessing(image_size=(6, 6)))
    assert torch.equal(loaded, torch.full((1, 3, 6, 6), 40000 // 256, dtype=torch.uint8))


# --- CIFAR-100 -------------------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[Path], Path]] = {
    "official": lambda root: makers.write_official(root, Cifar()),
    "official, Python 3": lambda root: makers.write_official(root, Cifar(), lambda value: pickle.dumps(value, 4)),
    "where torchvision unpacks it": lambda root: makers.write_official(root / "cifar-100-python", Cifar()).parent,
    "tar.gz": lambda root: makers.write_official_tar(root / "a.tar.gz", makers.official_members(Cifar())),
    "tar": lambda root: makers.write_official_tar(root / "a.tar", makers.official_members(Cifar()), ""),
    "parquet": lambda root: makers.write_parquet(root, Cifar()),
    "zips": lambda root: makers.write_zips(root, Cifar()),
}


@pytest.mark.parametrize("form", FORMS)
def test_cifar100_is_the_same_in_every_form(tmp_path: Path, form: str) -> None:
    splits = open_data("cifar100", FORMS[form](tmp_path), holdout=40, seed=3)
    assert (len(splits.training()), len(splits.calibration), len(splits.test)) == (160, 40, 100)
    assert _contents(splits.training(), splits.calibration) == _truth("train")
    pixels, labels, files = Cifar().part("test")
    assert torch.equal(pixels_of(splits.test), torch.from_numpy(pixels))
    assert splits.test.targets.tolist() == labels
    assert splits.test.classes == Cifar().classes
    if form == "parquet":  # it does not keep the place in the original files
        assert splits.test.images.name(5) == "test/5"
    else:
        assert names_of(splits.test) == files


def test_cifar100_without_file_names_numbers_the_images(tmp_path: Path) -> None:
    pixels = makers.random_pixels(3)
    batch = {b"data": np.asfortranarray(pixels.reshape(3, 3072)), b"fine_labels": [0, 1, 0]}  # as numpy also stores it
    members = {"train": batch, "test": batch, "meta": {b"fine_label_names": [b"a", b"b"]}}
    for name, values in members.items():
        (tmp_path / name).write_bytes(makers.python2_pickle(values))
    test = open_data("cifar100", tmp_path, holdout=1).test
    assert names_of(test) == ["test/0", "test/1", "test/2"]
    assert torch.equal(pixels_of(test), torch.from_numpy(pixels))


def test_real_cifar100(shared_data: Path) -> None:
    splits = makers.real_cifar100(shared_data)
    train = splits.training()
    assert (len(train), len(splits.calibration), len(splits.test)) == (45000, 5000, 10000)
    assert train.classes[:2] == ("apple", "aquarium_fish")
    assert len(set(train.classes)) == 100
    assert torch.bincount(train.targets).tolist() == [450] * 100
    assert torch.bincount(splits.calibration.targets).tolist() == [50] * 100
    mean = pixels_of(train).float().mean(dim=(0, 2, 3)) / 255
    assert torch.allclose(mean, torch.tensor([0.5071, 0.4865, 0.4409]), atol=2e-3)  # the published figures


def _contents(*parts: ImageSet) -> Counter[tuple[bytes, int]]:
    return Counter(item for part in parts for item in zip(part.images.digests(), part.targets.tolist(), strict=True))


def _truth(name: str) -> Counter[tuple[bytes, int]]:
    pixels, labels, _ = Cifar().part(name)
    return Counter(zip(ArrayImages(torch.from_numpy(pixels)).digests(), labels, strict=True))


# --- ImageNet tars ---------------------------------------------------------------------------------------------------


def test_labelled_tar_is_sorted_by_file_name(tmp_path: Path) -> None:
    pixels = makers.random_pixels(5, size=12)
    read = read_labelled_tar(makers.write_labelled_tar(tmp_path / "small.tar", pixels))
    assert names_of(read) == [f"images/{index:02}.png" for index in range(5)]
    assert read.targets.tolist() == [0, 1, 2, 0, 1]
    assert read.classes == ("x", "y", "z")
    assert torch.equal(pixels_of(read, 12), torch.from_numpy(pixels))


def test_imagenet_folder_has_calibration_and_test_but_no_training(tmp_path: Path) -> None:
    makers.write_labelled_tar(tmp_path / "imagenet_samples_3.tar", makers.random_pixels(3, seed=1))
    makers.write_labelled_tar(tmp_path / "imagenet_val_6.tar", makers.random_pixels(6, seed=2))
    splits = open_data("imagenet-tar", tmp_path)
    assert splits.train is None
    assert torch.equal(pixels_of(splits.calibration), torch.from_numpy(makers.random_pixels(3, seed=1)))
    assert torch.equal(pixels_of(splits.test), torch.from_numpy(makers.random_pixels(6, seed=2)))


def test_real_imagenet(shared_data: Path) -> None:
    splits: Splits = open_data("imagenet-tar", shared_data)
    assert (len(splits.calibration), len(splits.test)) == (1000, 2000)
    assert torch.bincount(splits.test.targets).tolist() == [2] * 1000
    assert torch.bincount(splits.calibration.targets).tolist() == [1] * 1000
    assert splits.test.classes[:2] == ("tench", "goldfish")
    first = splits.calibration.targets.argmin()
    assert "tench" in splits.calibration.images.name(int(first))
    loaded = splits.test.images.load([0, 1999], Preprocessing(image_size=(64, 48), resize=70))
    assert loaded.shape == (2, 3, 64, 48)
    assert loaded.float().std() > 10  # pictures, not blanks
