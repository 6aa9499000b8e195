"""Parquet files, zips and tars that are damaged, incomplete or foreign are refused and named."""

from __future__ import annotations

import gzip
import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from maqee.data import open_data
from maqee.data.readers.imagenet import read_labelled_tar
from tests.data import makers
from tests.data.makers import Cifar, assert_refused

Change = dict[str, bytes | None]


# --- parquet ---------------------------------------------------------------------------------------------------------

_IMAGE = {"bytes": makers.encode(makers.random_pixels(1)[0]), "path": "a.png"}
_LARGE = {"bytes": makers.encode(makers.random_pixels(1, size=64)[0]), "path": "a.png"}
TABLES: dict[str, tuple[dict[str, Sequence[object]], str]] = {
    "no images": ({"fine_label": [1]}, "has no column 'image'"),
    "no labels": ({"img": [_IMAGE]}, "has no column 'fine_label'"),
    "corrupt image": ({"img": [_IMAGE, {"bytes": b"x"}], "fine_label": [1, 2]}, "row 1 is not a CIFAR-100 image"),
    "large image": ({"img": [_LARGE], "fine_label": [1]}, "row 0 is not a CIFAR-100 image"),
    "no bytes": ({"img": [_IMAGE, None], "fine_label": [1, 2]}, "row 1 is not a CIFAR-100 image"),
    "no label": ({"img": [_IMAGE, _IMAGE], "fine_label": [1, None]}, "row 1 is not a CIFAR-100 image"),
}


@pytest.mark.parametrize("case", TABLES)
def test_parquet_tables_are_checked(tmp_path: Path, case: str) -> None:
    columns, fragment = TABLES[case]
    makers.write_table(tmp_path / "train-0.parquet", columns)
    assert_refused(lambda: open_data("cifar100", tmp_path), str(tmp_path / "train-0.parquet"), fragment)


def test_damaged_missing_and_foreign_parquet_files(tmp_path: Path) -> None:
    good: dict[str, Sequence[object]] = {"img": [_IMAGE, _IMAGE], "fine_label": [1, 2]}
    makers.write_table(tmp_path / "train-0.parquet", good)
    assert_refused(lambda: open_data("cifar100", tmp_path), str(tmp_path), "no parquet file of the test split")
    (tmp_path / "test-0.parquet").write_bytes((tmp_path / "train-0.parquet").read_bytes()[:-20])
    assert_refused(lambda: open_data("cifar100", tmp_path), "test-0.parquet is not a readable parquet file")
    (tmp_path / "test-0.parquet").rename(tmp_path / "dev-0.parquet")
    assert_refused(lambda: open_data("cifar100", tmp_path), "dev-0.parquet belongs to no split")


# --- mosaics in zip files --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good zips, to be copied and spoilt."""
    return makers.write_zips(tmp_path_factory.mktemp("zips"), Cifar())


def _npy(labels: list[object]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(labels))
    return stream.getvalue()


ZIPS: dict[str, tuple[Change, str]] = {
    "no sheets": ({"sheet_000.webp": None}, "is damaged"),
    "no labels": ({"labels.npy": None}, "is damaged"),
    "no file names": ({"filenames.txt": None}, "is damaged"),
    "corrupt sheet": ({"sheet_000.webp": b"RIFFnothing"}, "is damaged"),
    "small sheet": ({"sheet_000.webp": makers.encode(makers.random_pixels(1)[0], "WEBP")}, "is damaged"),
    "empty labels": ({"labels.npy": b""}, "is damaged"),
    "pickled labels": ({"labels.npy": _npy([None, {}])}, "is damaged"),
    "too few labels": ({"labels.npy": _npy([1] * 99)}, "100 images and 99 labels"),
    "too few file names": ({"filenames.txt": b"a.png\n"}, "100 images and 1 file names"),
    "no meta": ({"meta.json": None}, "is damaged"),
    "meta without names": ({"meta.json": b"[1, 2]"}, "is damaged"),
}


@pytest.mark.parametrize("case", ZIPS)
def test_zip_members_are_checked(tmp_path: Path, zips: Path, case: str) -> None:
    changes, fragment = ZIPS[case]
    root = shutil.copytree(zips, tmp_path / "zips")
    makers.rewrite_zip(root / "cifar100_test.zip", changes)
    place = "cifar100_test.zip" if fragment == "is damaged" else "cifar100 test"
    assert_refused(lambda: open_data("cifar100", root, holdout=1), place, fragment)


@pytest.mark.parametrize("name", ["cifar100_test.zip", "cifar100_train_2of2.zip"])
def test_damaged_and_missing_zips(tmp_path: Path, zips: Path, name: str) -> None:
    root = shutil.copytree(zips, tmp_path / "zips")
    data = bytearray((root / name).read_bytes())
    data[len(data) // 2] ^= 0xFF  # inside a stored sheet: only the checksum can tell
    (root / name).write_bytes(data)
    assert_refused(lambda: open_data("cifar100", root, holdout=1), f"{root / name} is damaged")
    (root / name).write_bytes(data[:-100])
    assert_refused(lambda: open_data("cifar100", root, holdout=1), f"{root / name} is damaged")
    for file in root.glob("cifar100_train_*.zip"):
        file.unlink()
    assert_refused(lambda: open_data("cifar100", root, holdout=1), str(root), "no cifar100_train_*.zip")


# --- ImageNet tars ---------------------------------------------------------------------------------------------------

TARS: dict[str, tuple[Change, str]] = {
    "no labels.csv": ({"labels.csv": None}, "has no member 'labels.csv'"),
    "no classes.json": ({"classes.json": None}, "has no member 'classes.json'"),
    "image missing": ({"images/01.png": None, "images/02.png": None}, "lacks 2 images of labels.csv, the first is"),
    "label in words": ({"labels.csv": b"file,class_index\nimages/00.png,ant\n"}, "labels.csv needs columns"),
    "no label column": ({"labels.csv": b"file,label\nimages/00.png,1\n"}, "labels.csv needs columns"),
    "short row": ({"labels.csv": b"file,class_index\nimages/00.png\n"}, "labels.csv needs columns"),
    "no rows": ({"labels.csv": b"file,class_index\n"}, "holds no images"),
    "label out of range": ({"labels.csv": b"file,class_index\nimages/00.png,3\n"}, "3 of images/00.png"),
    "classes not JSON": ({"classes.json": b"x, y, z"}, "classes.json must be a list"),
    "classes without names": ({"classes.json": b'[{"index": 0}]'}, "classes.json must be a list"),
    "labels not text": ({"labels.csv": b"\xff\xfe\x00"}, "is damaged"),
}


@pytest.mark.parametrize("case", TARS)
def test_labelled_tars_are_checked(tmp_path: Path, case: str) -> None:
    changes, fragment = TARS[case]
    path = makers.write_labelled_tar(tmp_path / "small.tar", makers.random_pixels(3), changes)
    assert_refused(lambda: read_labelled_tar(path), "small", fragment)


def test_damaged_and_compressed_labelled_tars(tmp_path: Path) -> None:
    path = makers.write_labelled_tar(tmp_path / "small.tar", makers.random_pixels(3))
    whole = path.read_bytes()
    for spoilt in (b"", whole[:1500], gzip.compress(whole), b"not a tar" * 100):
        path.write_bytes(spoilt)
        assert_refused(lambda: read_labelled_tar(path), f"{path} is damaged")


def test_corrupt_image_in_a_tar_names_image_and_tar(tmp_path: Path) -> None:
    path = makers.write_labelled_tar(tmp_path / "small.tar", makers.random_pixels(3), {"images/01.png": b"x"})
    images = read_labelled_tar(path)
    assert_refused(lambda: makers.pixels_of(images), "1 of 3 images", f"images/01.png in {path}")


@pytest.mark.parametrize(
    "names",
    [[], ["imagenet_samples_1.tar"], ["imagenet_samples_1.tar", "imagenet_val_1.tar", "imagenet_val_2.tar"]],
)
def test_imagenet_folder_needs_one_tar_of_each_kind(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        makers.write_labelled_tar(tmp_path / name, makers.random_pixels(1))
    assert_refused(lambda: open_data("imagenet-tar", tmp_path), str(tmp_path), "expected one")
