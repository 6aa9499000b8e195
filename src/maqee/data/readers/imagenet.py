"""ImageNet subsets in tar files with a labels.csv: one for calibration, and training if asked for, one for testing."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from pathlib import Path

import torch

from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import FileEntry, FileImages
from maqee.data.readers.registry import DataOptions, readers
from maqee.errors import MaqeeError


@readers.register("imagenet-tar")
def read_imagenet_tars(options: DataOptions) -> Splits:
    """A folder with one tar of validation images (*val*.tar) and one to calibrate on (*sample*.tar).

    With `holdout` so many of the samples are for calibration, and exits can be trained on the others.
    """
    root = options.required_path("the folder with the ImageNet tars")
    found = {kind: sorted(root.glob(f"imagenet*{kind}*.tar")) for kind in ("sample", "val")}
    for kind, paths in found.items():
        if len(paths) != 1:
            raise MaqeeError(f"{root} holds {len(paths)} files imagenet*{kind}*.tar, expected one.")
    samples, test = (read_labelled_tar(found[kind][0]) for kind in ("sample", "val"))
    if options.holdout is None:
        return Splits(None, samples, test)
    train, calibration = hold_out(samples, options.holdout, options.seed, samples.name, f"{samples.name} calibration")
    return Splits(train, calibration, test)


def read_labelled_tar(path: Path) -> ImageSet:
    """Images listed in labels.csv (file, class_index, ...), sorted by file name; classes.json names the classes."""
    try:
        with tarfile.open(path, "r:") as archive:  # images are read at their offset: no compression
            members = {member.name: member for member in archive.getmembers() if member.isfile()}
            table = _read_member(archive, members, "labels.csv", path).decode()
            listed = _read_member(archive, members, "classes.json", path).decode()
    except (tarfile.TarError, OSError, ValueError) as error:
        raise MaqeeError(f"{path} is damaged ({error}): copy it again.") from error
    rows, names = _parse_labels(table, path), _parse_classes(listed, path)
    if missing := [name for name, _ in rows if name not in members]:
        raise MaqeeError(f"{path} lacks {len(missing)} images of labels.csv, the first is {missing[0]}.")
    entries = [FileEntry(name, path, members[name].offset_data, members[name].size) for name, _ in rows]
    return ImageSet(path.stem, FileImages(entries), torch.tensor([label for _, label in rows]), names)


def _parse_labels(table: str, path: Path) -> list[tuple[str, int]]:
    try:
        return sorted((row["file"], int(row["class_index"])) for row in csv.DictReader(io.StringIO(table)))
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise MaqeeError(f"{path}: labels.csv needs columns file and class_index, whole numbers ({error}).") from error


def _parse_classes(listed: str, path: Path) -> tuple[str, ...]:
    try:
        return tuple(str(entry["name"]) for entry in json.loads(listed))
    except (KeyError, ValueError, TypeError) as error:
        raise MaqeeError(f"{path}: classes.json must be a list of objects with a name ({error}).") from error


def _read_member(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], name: str, path: Path) -> bytes:
    file = archive.extractfile(members[name]) if name in members else None
    if file is None:
        raise MaqeeError(f"{path} has no member {name!r}.")
    return file.read()
