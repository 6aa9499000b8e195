"""CIFAR-100 in the three forms it is found in: official pickles, a parquet copy, mosaics in zip files."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import ArrayImages
from maqee.data.readers import DataOptions, readers
from maqee.errors import MaqeeError

CALIBRATION_IMAGES = 5000
_CLASSES = 100
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
    images = ArrayImages(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), files)
    return ImageSet(name, images, torch.from_numpy(labels), classes)


def _read(path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    if path.is_file() and tarfile.is_tarfile(path):
        return _read_official_tar(path)
    if (path / "train").is_file() and (path / "test").is_file():
        return _read_official({name: (path / name).read_bytes() for name in ("train", "test", "meta")}, path)
    if parquet := sorted(path.rglob("*.parquet")):
        return _read_parquet(parquet, path)
    if (path / "cifar100_test.zip").is_file():
        return _read_zips(path)
    raise MaqeeError(
        f"{path} is not CIFAR-100 in a known form: expected train, test and meta of the python version (or its tar), "
        "parquet files, or cifar100_test.zip and cifar100_train_*.zip."
    )


# --- official python version -----------------------------------------------------------------------------------------


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that can build numpy arrays and nothing else, so that a file cannot run code."""

    _ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def _unpickle(data: bytes, source: str) -> dict[str, Any]:
    try:
        values = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
        return {key.decode() if isinstance(key, bytes) else key: value for key, value in values.items()}
    except (pickle.UnpicklingError, EOFError, AttributeError, ValueError, IndexError, KeyError, TypeError) as error:
        raise MaqeeError(f"{source} is not a CIFAR-100 batch ({error}): download it again.") from error


def _read_official_tar(path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    members: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for name in ("train", "test", "meta"):
            member = next((m for m in archive.getmembers() if Path(m.name).name == name and m.isfile()), None)
            file = archive.extractfile(member) if member else None
            if file is None:
                raise MaqeeError(f"{path} has no member {name!r}: it is not the python version of CIFAR-100.")
            members[name] = file.read()
    return _read_official(members, path)


def _read_official(members: dict[str, bytes], path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    raws = []
    for name in ("train", "test"):
        values = _unpickle(members[name], f"{path}: {name}")
        try:
            data, labels = np.asarray(values["data"], dtype=np.uint8), np.asarray(values["fine_labels"], dtype=np.int64)
        except KeyError as error:
            raise MaqeeError(f"{path}: {name} lacks the key {error.args[0]!r}: it is not CIFAR-100.") from error
        pixels = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        files = [file.decode() for file in values.get("filenames", [])] or [f"{name}/{i}" for i in range(len(labels))]
        raws.append((np.ascontiguousarray(pixels), labels, files))
    meta = _unpickle(members["meta"], f"{path}: meta")
    classes = tuple(name.decode() for name in meta["fine_label_names"])
    return raws[0], raws[1], classes


# --- parquet copy ----------------------------------------------------------------------------------------------------


def _read_parquet(files: Iterable[Path], path: Path) -> tuple[Raw, Raw, tuple[str, ...]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MaqeeError(f"{path} holds parquet files, which need pyarrow: pip install 'maqee[hf]'.") from error
    rows: dict[str, list[tuple[NDArray[np.uint8], int]]] = {"train": [], "test": []}
    for file in files:
        split = next((name for name in rows if file.name.startswith(name)), None)
        if split is None:
            raise MaqeeError(f"{file} belongs to no split: parquet files must be named train-* or test-*.")
        table = parquet.read_table(file).to_pydict()
        column = "img" if "img" in table else "image"
        for key in (column, "fine_label"):
            if key not in table:
                raise MaqeeError(f"{file} has no column {key!r}: it is not CIFAR-100.")
        for image, label in zip(table[column], table["fine_label"], strict=True):
            with Image.open(io.BytesIO(image["bytes"])) as picture:
                rows[split].append((np.asarray(picture.convert("RGB")), int(label)))
    raws = [_stack(rows[name], name, path) for name in ("train", "test")]
    return raws[0], raws[1], tuple(f"class {label}" for label in range(_CLASSES))


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
    with zipfile.ZipFile(path / "cifar100_test.zip") as archive:
        classes = tuple(json.loads(archive.read("meta.json"))["fine_names"])
    return train, _read_mosaics(path / "cifar100_test.zip"), classes


def _read_mosaics(path: Path) -> Raw:
    """Sheets of 10 x 10 images, row by row, in lossless WebP."""
    try:
        with zipfile.ZipFile(path) as archive:
            sheets = []
            for name in sorted(name for name in archive.namelist() if name.endswith(".webp")):
                with Image.open(io.BytesIO(archive.read(name))) as sheet:
                    sheets.append(np.asarray(sheet.convert("RGB")))
            labels = np.load(io.BytesIO(archive.read("labels.npy")), allow_pickle=False).astype(np.int64)
            files = archive.read("filenames.txt").decode().splitlines()
    except (zipfile.BadZipFile, OSError, KeyError, ValueError) as error:
        raise MaqeeError(f"{path} is damaged ({error}): copy it again.") from error
    tiles = [sheet.reshape(10, 32, 10, 32, 3).transpose(0, 2, 1, 3, 4).reshape(100, 32, 32, 3) for sheet in sheets]
    return np.concatenate(tiles), labels, files
