"""ADE20K as SceneParse150: 150 classes, as the benchmark's folders or as parquet files of its copy on the Hub.

In its masks 0 is "other", which does not count, and 1 to 150 are the classes, here 0 to 149.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import IMAGE_ENDINGS, Entry, FileEntry, FileImages, MemoryEntry
from maqee.data.mask_targets import MaskFiles
from maqee.data.pairs import MaskCode, Pair, pair_up
from maqee.data.readers.registry import DataOptions, readers
from maqee.errors import MaqeeError

CLASSES = 150
_CODE = MaskCode(first=1, classes=CLASSES, ignored=(0,))
_INNER = "ADEChallengeData2016"  # what the official archive unpacks to
_CLASS_LIST = "objectInfo150.csv"
_HUB_SPLITS = ("train", "validation", "test")


@readers.register("ade20k")
def read_ade20k(options: DataOptions) -> Splits:
    """Validation images to test; calibration is held out of training (a tenth unless said otherwise).

    Where there are no training images, calibration is held out of validation, and the data can only be evaluated.
    """
    root = options.required_path("a folder with images/validation and annotations/validation, or parquet files")
    if (root / _INNER).is_dir():
        root = root / _INNER
    pairs = _read_folders(root) if (root / "images").is_dir() else _read_parquet(root)
    classes = _class_names(root)
    sets = {name: _image_set(f"ade20k {name}", found, classes) for name, found in pairs.items() if found}
    if "validation" not in sets:
        raise MaqeeError(f"{root} has no validation images: give the whole of ADE20K.")
    source = sets.get("training", sets["validation"])
    count = max(1, len(source) // 10) if options.holdout is None else options.holdout
    rest, calibration = hold_out(source, count, options.seed, source.name, "ade20k calibration")
    return Splits(rest, calibration, sets["validation"]) if "training" in sets else Splits(None, calibration, rest)


def _image_set(name: str, pairs: list[Pair], classes: tuple[str, ...]) -> ImageSet:
    images = FileImages([pair.image for pair in pairs], turn=False)
    return ImageSet(name, images, torch.arange(len(pairs)), classes, MaskFiles(pairs, _CODE))


def _class_names(root: Path) -> tuple[str, ...]:
    """The first name of each class in objectInfo150.csv, where that lies beside the data; else numbers."""
    path = root / _CLASS_LIST
    if not path.is_file():
        return tuple(f"class {number}" for number in range(1, CLASSES + 1))
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        named = {int(row["Idx"]): row["Name"].split(";")[0] for row in rows}
        return tuple(named[number] for number in range(1, CLASSES + 1))
    except (KeyError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise MaqeeError(f"{path} needs columns Idx and Name for classes 1 to {CLASSES}.") from error


def _read_folders(root: Path) -> dict[str, list[Pair]]:
    """images/SPLIT/*.jpg with annotations/SPLIT/*.png; a split that is not there stays empty."""
    found: dict[str, list[Pair]] = {}
    for split in ("training", "validation"):
        images, masks = root / "images" / split, root / "annotations" / split
        if images.is_dir():
            found[split] = pair_up(_files(images), _files(masks), str(images))
    return found


def _files(folder: Path) -> dict[str, Entry]:
    paths = folder.iterdir() if folder.is_dir() else []
    return {path.stem: FileEntry(str(path), path) for path in paths if path.suffix.lower() in IMAGE_ENDINGS}


# --- parquet files of scene_parse_150 --------------------------------------------------------------------------------


def _read_parquet(root: Path) -> dict[str, list[Pair]]:
    """Tables with columns image and annotation; the Hub's second subset, of instances, is left out."""
    files = [file for file in sorted(root.rglob("*.parquet")) if "instance_segmentation" not in file.parts]
    if not files:
        raise MaqeeError(f"{root} holds neither a folder 'images' nor parquet files: it is not ADE20K in a known form.")
    found: dict[str, list[Pair]] = {"training": [], "validation": []}
    for file in files:
        split = _split_of(file)
        if split != "test":  # the benchmark keeps those masks to itself
            found["training" if split == "train" else split] += _read_table(file)
    return found


def _split_of(file: Path) -> str:
    """train-00000-of-00004.parquet, or train/0000.parquet."""
    for split in _HUB_SPLITS:
        if file.name.startswith(split) or file.parent.name == split:
            return split
    raise MaqeeError(f"{file} belongs to no split: name it, or its folder, after train, validation or test.")


def _read_table(file: Path) -> Iterator[Pair]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MaqeeError(f"{file} is a parquet file, which needs pyarrow: pip install 'maqee[hf]'.") from error
    try:
        names = parquet.read_schema(file).names
        for column in ("image", "annotation"):
            if column not in names:
                raise MaqeeError(f"{file} has no column {column!r}: it is not scene_parse_150.")
        table = parquet.read_table(file, columns=["image", "annotation"]).to_pydict()
    except (OSError, ValueError) as error:
        raise MaqeeError(f"{file} is not a readable parquet file: download it again.") from error
    for number, (image, mask) in enumerate(zip(table["image"], table["annotation"], strict=True)):
        yield Pair(_encoded(image, file, number, "image"), _encoded(mask, file, number, "annotation"))


def _encoded(cell: Any, file: Path, number: int, column: str) -> MemoryEntry:
    data = cell.get("bytes") if isinstance(cell, dict) else None
    if not isinstance(data, bytes):
        raise MaqeeError(f"{file}: row {number} has no bytes in column {column!r}: download the file again.")
    return MemoryEntry(f"{file}: row {number}, {column}", data)
