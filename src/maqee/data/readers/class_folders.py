"""A folder of images, one sub-folder a class."""

from __future__ import annotations

from pathlib import Path

import torch

from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import FileEntry, FileImages, image_files
from maqee.data.readers.registry import DataOptions, readers
from maqee.errors import MaqeeError

_TEST_NAMES = ("test", "val", "validation")


@readers.register("folder")
def read_folder(options: DataOptions) -> Splits:
    """train/CLASS/*.jpg and test/CLASS/*.jpg (or val); calibration/CLASS/*.jpg, or held out of train: a tenth."""
    root = options.required_path("a folder with train/CLASS and test/CLASS in it")
    test_folder = next((root / name for name in _TEST_NAMES if (root / name).is_dir()), None)
    if test_folder is None or not (root / "train").is_dir():
        raise MaqeeError(f"{root} must hold a folder 'train' and a folder 'test' (or 'val') with one folder a class.")
    classes = class_names(root / "train")
    train, test = read_classes(root / "train", classes), read_classes(test_folder, classes)
    if (root / "calibration").is_dir():
        return Splits(train, read_classes(root / "calibration", classes), test)
    count = max(1, len(train) // 10) if options.holdout is None else options.holdout
    rest, calibration = hold_out(train, count, options.seed, train.name, f"{root / 'train'} (calibration)")
    return Splits(rest, calibration, test)


def class_names(folder: Path) -> tuple[str, ...]:
    """The sub-folders, sorted."""
    names = tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()))
    if not names:
        raise MaqeeError(f"{folder} holds no class folders: put each class's images into a folder of its own.")
    return names


def read_classes(folder: Path, classes: tuple[str, ...]) -> ImageSet:
    """Every image below the class folders; a class the list does not know is an error, an empty one too."""
    if unknown := sorted(set(class_names(folder)) - set(classes)):
        raise MaqeeError(
            f"{folder} has {len(unknown)} classes that the training folder lacks, the first is {unknown[0]}."
        )
    entries, labels = [], []
    for label, name in enumerate(classes):
        files = image_files(folder / name)
        if not files:
            raise MaqeeError(f"{folder / name} holds no images: add some or remove the class everywhere.")
        entries += [FileEntry(str(path), path) for path in files]
        labels += [label] * len(files)
    return ImageSet(str(folder), FileImages(entries), torch.tensor(labels), classes)
