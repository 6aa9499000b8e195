"""CamVid: road scenes of 480x360 pixels with 11 classes, as a tar or a folder of SPLIT/images and SPLIT/masks."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path, PurePosixPath

import torch

from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import ArrayImages, Entry, FileEntry
from maqee.data.mask_targets import MASKS
from maqee.data.pairs import MaskCode, pair_up, read_all
from maqee.data.readers.registry import DataOptions, readers
from maqee.errors import MaqeeError

_SPLITS = ("train", "val", "test")
_CLASS_LIST = "classes.json"


@readers.register("camvid")
def read_camvid(options: DataOptions) -> Splits:
    """The data set's own splits: train to train, val (never trained on) to calibrate, test to test.

    With `holdout`, train and val together lose so many images to calibration, and training sees the rest.
    """
    path = options.required_path("camvid*.tar, a folder that holds it, or the unpacked folder")
    entries = _list_entries(path)
    classes, code = _read_classes(entries, path)
    sets = {split: _read_split(entries, split, classes, code, path) for split in _SPLITS}
    if options.holdout is None:
        return Splits(sets["train"], sets["val"], sets["test"])
    both = _join(sets["train"], sets["val"])
    rest, calibration = hold_out(both, options.holdout, options.seed, "camvid train", "camvid calibration")
    return Splits(rest, calibration, sets["test"])


def _list_entries(path: Path) -> dict[str, FileEntry]:
    """Every file by its path within the data set."""
    if path.is_dir() and not (path / _CLASS_LIST).is_file():
        found = sorted(path.glob("camvid*.tar"))
        if len(found) != 1:
            raise MaqeeError(f"{path} holds {len(found)} files camvid*.tar and no {_CLASS_LIST}: give CamVid's folder.")
        path = found[0]
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        return {file.relative_to(path).as_posix(): FileEntry(str(file), file) for file in files}
    try:
        with tarfile.open(path, "r:") as archive:  # images are read at their offset: no compression
            members = [member for member in archive.getmembers() if member.isfile()]
    except (tarfile.TarError, OSError, ValueError) as error:
        raise MaqeeError(f"{path} is damaged or no plain tar ({error}): copy it again.") from error
    entries = [FileEntry(member.name, path, member.offset_data, member.size) for member in members]
    return {entry.name.removeprefix("./"): entry for entry in entries}


def _read_classes(entries: dict[str, FileEntry], path: Path) -> tuple[tuple[str, ...], MaskCode]:
    """The list of classes, and the number of unlabelled pixels."""
    if _CLASS_LIST not in entries:
        raise MaqeeError(f"{path} has no {_CLASS_LIST}: it is not CamVid in a known form.")
    try:
        values = json.loads(entries[_CLASS_LIST].read())
        classes = tuple(str(name) for name in values["classes"])
        code = MaskCode(0, len(classes), (int(values["ignore_index"]),))
    except (KeyError, ValueError, TypeError) as error:
        raise MaqeeError(f"{path}: {_CLASS_LIST} needs a list 'classes' and a number 'ignore_index'.") from error
    return classes, code


def _read_split(
    entries: dict[str, FileEntry], split: str, classes: tuple[str, ...], code: MaskCode, path: Path
) -> ImageSet:
    images, masks = (_below(entries, f"{split}/{kind}") for kind in ("images", "masks"))
    name = f"camvid {split}"
    pairs = pair_up(images, masks, f"{path}, split {split!r}")
    pixels, targets = read_all(pairs, code, name)
    source = ArrayImages(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), [pair.image.name for pair in pairs])
    return ImageSet(name, source, torch.from_numpy(targets), classes, MASKS)


def _below(entries: dict[str, FileEntry], folder: str) -> dict[str, Entry]:
    """The files of a folder by their names without ending."""
    paths = {PurePosixPath(name): entry for name, entry in entries.items()}
    return {path.stem: entry for path, entry in paths.items() if str(path.parent) == folder}


def _join(one: ImageSet, other: ImageSet) -> ImageSet:
    """Both sets as one."""
    assert isinstance(one.images, ArrayImages)
    assert isinstance(other.images, ArrayImages)
    if one.targets.shape[1:] != other.targets.shape[1:]:
        raise MaqeeError(f"{one.name} and {other.name} have images of different sizes: resize all to one size.")
    names = [*(one.images.names or ()), *(other.images.names or ())]
    images = ArrayImages(torch.cat([one.images.pixels, other.images.pixels]), names)
    return ImageSet(f"{one.name} and val", images, torch.cat([one.targets, other.targets]), one.classes, MASKS)
