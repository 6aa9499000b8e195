"""CIFAR-100 in the three forms it is found in: official pickles, a parquet copy, mosaics in zip files."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import ArrayImages
from maqee.data.readers.pickles import unpickle
from maqee.data.readers.registry import DataOptions, readers
from maqee.errors import MaqeeError

CALIBRATION_IMAGES = 5000
_CLASSES = 100
_OFFICIAL = ("train", "test", "meta")
_DAMAGE = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    KeyError,
    ValueError,
    TypeError,
    SyntaxError,
)  # of an archive and its members
Raw = tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]  # pixels (n, 32, 32, 3), labels, file names


@readers.register("cifar100")
def read_cifar100(options: DataOptions) -> Splits:
    """Training images less the calibration ones (5,000 unless said otherwise), and the 10,000 test images."""
    path = options.required_path("the folder or archive of CIFAR-100")
    train_raw, test_raw, names = _read(path)
    train, test = _image_set("cifar100 train", train_raw, names), _image_set("cifar100 test", test_raw, names)
    count = CALIBRATION_IMAGES if options.holdout is None else options.holdout
    rest, calibration = hold_out(train, count, options.seed, "cifar100 train", "cifar100 calibration")
    return Splits(rest, calibration, test)


def _image_set(name: str, raw: Raw, classes: tuple[str, ...]) -> ImageSet:
    pixels, labels, files = raw
    if len(files) != len(pixels):
        raise MaqeeError(f"{name} has {len(pixels)} images and {len(files)} file names.")
    images = ArrayImages(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), files)
    return ImageSet(name, images, torch.from_numpy(labels), classes)


def _read(path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    if path.is_file() and _is_tar(path):
        return _read_official_tar(path)
    for folder in (path, path / "cifar-100-python"):  # the latter is where torchvision unpacks it
        if (folder / "train").is_file() and (folder / "test").is_file():
            return _read_official_folder(folder)
    if parquet := sorted(path.rglob("*.parquet")):
        return _read_parquet(parquet, path)
    if (path / "cifar100_test.zip").is_file():
        return _read_zips(path)
    raise MaqeeError(
        f"{path} is not CIFAR-100 in a known form: expected train, test and meta of the python version (or its tar), "
        "parquet files, or cifar100_test.zip and cifar100_train_*.zip."
    )


# --- official python version -----------------------------------------------------------------------------------------


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (EOFError, lzma.LZMAError):  # begins like one and breaks off; reading it says so
        return True


def _read_official_folder(path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    if missing := [name for name in _OFFICIAL if not (path / name).is_file()]:
        raise MaqeeError(f"{path} has no file {missing[0]!r}: it is not the python version of CIFAR-100.")
    return _read_official({name: (path / name).read_bytes() for name in _OFFICIAL}, path)


def _read_official_tar(path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for name in _OFFICIAL:
                member = next((m for m in archive.getmembers() if Path(m.name).name == name and m.isfile()), None)
                file = archive.extractfile(member) if member else None
                if file is None:
                    raise MaqeeError(f"{path} has no member {name!r}: it is not the python version of CIFAR-100.")
                members[name] = file.read()
    except (tarfile.TarError, *_DAMAGE) as error:
        raise MaqeeError(f"{path} is damaged ({error}): download it again.") from error
    return _read_official(members, path)


def _read_official(members: dict[str, bytes], path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    train, test = (_read_batch(members[name], name, path) for name in ("train", "test"))
    meta = unpickle(members["meta"], f"{path}: meta")
    if "fine_label_names" not in meta:
        raise MaqeeError(f"{path}: meta lacks the key 'fine_label_names': it is not CIFAR-100.")
    return train, test, _texts(meta["fine_label_names"])


def _read_batch(data: bytes, name: str, path: Path) -> Raw:
    values = unpickle(data, f"{path}: {name}")
    try:
        pixels = np.asarray(values["data"], dtype=np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = np.asarray(values["fine_labels"], dtype=np.int64)
        files = list(_texts(values.get("filenames", []))) or [f"{name}/{index}" for index in range(len(pixels))]
    except KeyError as error:
        raise MaqeeError(f"{path}: {name} lacks the key {error.args[0]!r}: it is not CIFAR-100.") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise MaqeeError(f"{path}: {name} is not a CIFAR-100 batch ({error}): download it again.") from error
    return np.ascontiguousarray(pixels), labels, files


def _texts(values: Iterable[bytes | str]) -> tuple[str, ...]:
    return tuple(value.decode() if isinstance(value, bytes) else str(value) for value in values)


# --- parquet copy ----------------------------------------------------------------------------------------------------


def _read_parquet(files: Iterable[Path], path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MaqeeError(f"{path} holds parquet files, which need pyarrow: pip install 'maqee[hf]'.") from error
    rows: dict[str, list[tuple[NDArray[np.uint8], int]]] = {"train": [], "test": []}
    classes = tuple(f"class {label}" for label in range(_CLASSES))
    for file in files:
        split = next((name for name in rows if file.name.startswith(name)), None)
        if split is None:
            raise MaqeeError(f"{file} belongs to no split: parquet files must be named train-* or test-*.")
        try:
            read = parquet.read_table(file)
            table, classes = read.to_pydict(), _parquet_classes(read.schema.metadata) or classes
        except (OSError, ValueError) as error:
            raise MaqeeError(f"{file} is not a readable parquet file: download it again.") from error
        rows[split] += _decode_rows(table, file)
    raws = [_stack(rows[name], name, path) for name in ("train", "test")]
    return raws[0], raws[1], classes


def _parquet_classes(metadata: dict[bytes, bytes] | None) -> tuple[str, ...]:
    """The class names that the datasets library writes into a file's schema; empty where they are not."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return _texts(features["fine_label"]["names"])
    except (KeyError, ValueError, TypeError):
        return ()


def _decode_rows(table: dict[str, list[Any]], file: Path) -> list[tuple[NDArray[np.uint8], int]]:
    column = "img" if "img" in table else "image"
    for key in (column, "fine_label"):
        if key not in table:
            raise MaqeeError(f"{file} has no column {key!r}: it is not CIFAR-100.")
    rows = []
    for number, (image, label) in enumerate(zip(table[column], table["fine_label"], strict=True)):
        try:
            with Image.open(io.BytesIO(image["bytes"])) as picture:
                pixels = np.asarray(picture.convert("RGB")).reshape(32, 32, 3)
            rows.append((pixels, int(label)))
        except (OSError, ValueError, TypeError, KeyError, SyntaxError) as error:
            raise MaqeeError(f"{file}: row {number} is not a CIFAR-100 image ({error}): download it again.") from error
    return rows


def _stack(rows: list[tuple[NDArray[np.uint8], int]], name: str, path: Path) -> Raw:
    if not rows:
        raise MaqeeError(f"{path} holds no parquet file of the {name} split.")
    labels = np.array([label for _, label in rows], dtype=np.int64)
    return np.stack([image for image, _ in rows]), labels, [f"{name}/{index}" for index in range(len(rows))]


# --- mosaics in zip files --------------------------------------------------------------------------------------------


def _read_zips(path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    train_files = sorted(path.glob("cifar100_train_*.zip"))
    if not train_files:
        raise MaqeeError(f"{path} has cifar100_test.zip but no cifar100_train_*.zip.")
    parts = [_read_mosaics(file) for file in train_files]
    train = (
        np.concatenate([pixels for pixels, _, _ in parts]),
        np.concatenate([labels for _, labels, _ in parts]),
        [name for _, _, names in parts for name in names],
    )
    test_file = path / "cifar100_test.zip"
    return train, _read_mosaics(test_file), _read_names(test_file)


def _read_names(path: Path) -> tuple[str, ...]:
    try:
        with zipfile.ZipFile(path) as archive:
            return _texts(json.loads(archive.read("meta.json"))["fine_names"])
    except (zipfile.BadZipFile, *_DAMAGE) as error:
        raise MaqeeError(f"{path} is damaged ({error}): copy it again.") from error


def _read_mosaics(path: Path) -> Raw:
    """Sheets of 10 x 10 images, row by row, in lossless WebP."""
    try:
        with zipfile.ZipFile(path) as archive:
            sheets = sorted(name for name in archive.namelist() if name.endswith(".webp"))
            pixels = np.concatenate([_cut_up(archive.read(name)) for name in sheets])
            labels = np.load(io.BytesIO(archive.read("labels.npy")), allow_pickle=False).astype(np.int64)
            files = archive.read("filenames.txt").decode().splitlines()
    except (zipfile.BadZipFile, *_DAMAGE) as error:
        raise MaqeeError(f"{path} is damaged ({error}): copy it again.") from error
    return pixels, labels, files


def _cut_up(data: bytes) -> NDArray[np.uint8]:
    """A sheet to its images (100, 32, 32, 3)."""
    with Image.open(io.BytesIO(data)) as sheet:
        tiles = np.asarray(sheet.convert("RGB")).reshape(10, 32, 10, 32, 3)
    return tiles.transpose(0, 2, 1, 3, 4).reshape(100, 32, 32, 3)
