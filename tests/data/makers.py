"""Small data sets, written the way the real ones are laid out."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from maqee.data import ArrayImages, ImageSet, Splits, open_data
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing

Pixels = NDArray[np.uint8]


def random_pixels(count: int, size: int = 32, seed: int = 0) -> Pixels:
    """Noise (count, 3, size, size)."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3, size, size), dtype=np.uint8)


def image_set(count: int, classes: int = 3, size: int = 8, seed: int = 0, name: str = "noise") -> ImageSet:
    """Noise in memory, labelled in turn."""
    pixels = torch.from_numpy(random_pixels(count, size, seed))
    labels = torch.arange(count) % classes
    return ImageSet(name, ArrayImages(pixels), labels, tuple(f"c{label}" for label in range(classes)))


def pixels_of(source: ImageSet, size: int = 32) -> Tensor:
    """Every image of a set."""
    return source.images.load(range(len(source)), Preprocessing(image_size=(size, size)))


def names_of(source: ImageSet) -> list[str]:
    """Every image's name."""
    return [source.images.name(index) for index in range(len(source))]


def assert_one_sentence(message: str) -> None:
    """What an error for a user must look like."""
    assert "\n" not in message
    assert message[-1] in ".?"
    assert not re.search(r"[.?!] [A-Z]", message), message


def assert_refused(opened: Callable[[], object], *fragments: str) -> None:
    """It must raise the user's error, in one sentence that contains the fragments."""
    with pytest.raises(MaqeeError) as caught:
        opened()
    assert_one_sentence(str(caught.value))
    for fragment in fragments:
        assert fragment in str(caught.value)


@cache
def real_cifar100(path: Path) -> Splits:
    """The real CIFAR-100, read once for all tests: it takes seconds."""
    return open_data("cifar100", path)


# --- encoded images --------------------------------------------------------------------------------------------------


def encode(pixels: Pixels, kind: str = "PNG") -> bytes:
    """One image (3, height, width) as a file; lossless."""
    stream = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(stream, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return stream.getvalue()


def write_images(folder: Path, count: int, size: int = 10, seed: int = 0) -> Pixels:
    """Files 00.png, 01.png, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = random_pixels(count, size, seed)
    for index, image in enumerate(pixels):
        (folder / f"{index:02}.png").write_bytes(encode(image))
    return pixels


def write_folder(root: Path, test: str = "test", count: int = 4) -> Path:
    """Classes "ant" and "bee" in train and test."""
    for seed, place in enumerate(("train/bee", "train/ant", f"{test}/bee", f"{test}/ant")):
        write_images(root / place, count, seed=seed)
    return root


# --- CIFAR-100 -------------------------------------------------------------------------------------------------------


@dataclass
class Cifar:
    """What a small CIFAR-100 holds; every form is written from this."""

    train: Pixels = field(default_factory=lambda: random_pixels(200, seed=1))
    test: Pixels = field(default_factory=lambda: random_pixels(100, seed=2))
    classes: tuple[str, ...] = ("apple", "bear", "chair", "dolphin")

    def part(self, name: str) -> tuple[Pixels, list[int], list[str]]:
        """Images, labels and file names."""
        pixels = self.train if name == "train" else self.test
        labels = [(7 * index + 1) % len(self.classes) for index in range(len(pixels))]
        return pixels, labels, [f"{name}_s_{index:06}.png" for index in range(len(pixels))]


class _Python2Pickler(pickle._Pickler):
    """Writes bytes and text as Python 2 wrote its str, as in the official files."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, value: bytes | str) -> None:
        data = value if isinstance(value, bytes) else value.encode()
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)  # type: ignore[attr-defined]
        self.memoize(value)  # type: ignore[attr-defined]

    dispatch[bytes] = dispatch[str] = save_string  # type: ignore[assignment]


def python2_pickle(value: object) -> bytes:
    """The bytes that the Python 2 and numpy of 2009 would have written."""
    stream = io.BytesIO()
    _Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def official_members(cifar: Cifar, dump: Callable[[object], bytes] = python2_pickle) -> dict[str, bytes]:
    """The files train, test and meta of the python version."""
    members = {"meta": dump({b"fine_label_names": [name.encode() for name in cifar.classes]})}
    for name in ("train", "test"):
        pixels, labels, files = cifar.part(name)
        batch = {b"filenames": [file.encode() for file in files], b"batch_label": name.encode(), b"fine_labels": labels}
        members[name] = dump(batch | {b"data": pixels.reshape(len(pixels), 3072)})
    return members


def write_official(root: Path, cifar: Cifar, dump: Callable[[object], bytes] = python2_pickle) -> Path:
    """The unpacked python version."""
    root.mkdir(parents=True, exist_ok=True)
    for name, data in official_members(cifar, dump).items():
        (root / name).write_bytes(data)
    return root


def write_official_tar(path: Path, members: dict[str, bytes], compression: str = "gz") -> Path:
    """The python version as it is downloaded."""
    with tarfile.open(path, f"w:{compression}") as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            _add(archive, f"cifar-100-python/{name}", data)
    return path


def write_parquet(root: Path, cifar: Cifar) -> Path:
    """The copy on the Hugging Face Hub."""
    for name in ("train", "test"):
        pixels, labels, files = cifar.part(name)
        images = [{"bytes": encode(image), "path": file} for image, file in zip(pixels, files, strict=True)]
        columns: dict[str, Sequence[object]] = {"img": images, "fine_label": labels}
        info = {"info": {"features": {"fine_label": {"names": list(cifar.classes), "_type": "ClassLabel"}}}}
        metadata = {b"huggingface": json.dumps(info).encode()}
        write_table(root / "cifar100" / f"{name}-00000-of-00001.parquet", columns, metadata)
    return root


def write_table(
    path: Path, columns: Mapping[str, Sequence[object]], metadata: Mapping[bytes, bytes] | None = None
) -> None:
    """A parquet file."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns, metadata=metadata), path)


def write_zips(root: Path, cifar: Cifar) -> Path:
    """Mosaics: the training images in two zips."""
    root.mkdir(parents=True, exist_ok=True)
    pixels, labels, files = cifar.part("train")
    write_zip(root / "cifar100_train_1of2.zip", pixels[:100], labels[:100], files[:100], cifar.classes)
    write_zip(root / "cifar100_train_2of2.zip", pixels[100:], labels[100:], files[100:], cifar.classes)
    write_zip(root / "cifar100_test.zip", *cifar.part("test"), cifar.classes)
    return root


def write_zip(path: Path, pixels: Pixels, labels: list[int], files: list[str], classes: tuple[str, ...]) -> None:
    """One zip of sheets of 100 images."""
    stream = io.BytesIO()
    np.save(stream, np.array(labels, dtype=np.uint8))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.json", json.dumps({"fine_names": classes}))
        archive.writestr("labels.npy", stream.getvalue())
        archive.writestr("filenames.txt", "\n".join(files) + "\n")
        for number in range(len(pixels) // 100):
            archive.writestr(f"sheet_{number:03}.webp", encode(_mosaic(pixels[100 * number :]), "WEBP"))


def _mosaic(pixels: Pixels) -> Pixels:
    """The first 100 images, laid out row by row in plain loops."""
    sheet = np.zeros((3, 320, 320), dtype=np.uint8)
    for index in range(100):
        top, left = 32 * (index // 10), 32 * (index % 10)
        sheet[:, top : top + 32, left : left + 32] = pixels[index]
    return sheet


def rewrite_zip(path: Path, changes: dict[str, bytes | None]) -> None:
    """Replace members of a zip, or leave them out where the new content is None."""
    with zipfile.ZipFile(path) as archive:
        members: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | changes).items():
            if data is not None:
                archive.writestr(name, data)


# --- ImageNet tars ---------------------------------------------------------------------------------------------------


def write_labelled_tar(path: Path, pixels: Pixels, changes: dict[str, bytes | None] | None = None) -> Path:
    """Images of classes 0, 1, 2, 0, 1, ...; listed in reverse, since readers must not rely on the order."""
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["file", "class_index", "wnid"])
    writer.writerows([f"images/{index:02}.png", index % 3, "n0"] for index in reversed(range(len(pixels))))
    members: dict[str, bytes | None] = {f"images/{i:02}.png": encode(image) for i, image in enumerate(pixels)}
    members["labels.csv"] = table.getvalue().encode()
    members["classes.json"] = json.dumps([{"index": i, "name": name} for i, name in enumerate("xyz")]).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in (members | (changes or {})).items():
            if data is not None:
                _add(archive, name, data)
    return path


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


# --- masks -----------------------------------------------------------------------------------------------------------


def encode_mask(numbers: Pixels) -> bytes:
    """Class numbers (height, width) as a file."""
    stream = io.BytesIO()
    Image.fromarray(numbers).save(stream, "PNG")
    return stream.getvalue()


def random_mask(height: int, width: int, highest: int, seed: int = 0) -> Pixels:
    """Numbers from 0 to `highest`, each of which occurs."""
    numbers = np.random.default_rng(seed).integers(0, highest + 1, (height, width), dtype=np.uint8)
    numbers.flat[: highest + 1] = np.arange(highest + 1)
    return numbers


def camvid_members(count: int = 4, size: tuple[int, int] = (12, 16)) -> dict[str, bytes]:
    """A small CamVid with 3 classes, 3 being unlabelled."""
    members = {"classes.json": json.dumps({"classes": ["sky", "road", "car"], "ignore_index": 3}).encode()}
    for seed, split in enumerate(("train", "val", "test")):
        for index in range(count):
            number = 100 * seed + index
            pixels = random_pixels(1, max(size), number)[0, :, : size[0], : size[1]]
            members[f"{split}/images/{split}_{index}.png"] = encode(pixels)
            members[f"{split}/masks/{split}_{index}.png"] = encode_mask(random_mask(*size, 3, number))
    return members


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """A plain tar."""
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            _add(archive, name, data)
    return path


def write_members(root: Path, members: Mapping[str, bytes]) -> Path:
    """The same, unpacked."""
    for name, data in members.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def ade20k_pairs(split: str, count: int) -> dict[str, tuple[bytes, bytes]]:
    """Images and masks of different sizes, with all 150 classes and "other"."""
    found = {}
    for index in range(count):
        height, width = 20 + index, 30 - index
        pixels = random_pixels(1, 40, index + len(split))[0, :, :height, :width]
        found[f"ADE_{split}_{index:08}"] = encode(pixels), encode_mask(random_mask(height, width, 150, index))
    return found
