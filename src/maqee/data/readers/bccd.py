"""BCCD: 364 microscope images of blood with red cells, white cells and platelets, as COCO json in one tar."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from maqee.data.box_targets import widen
from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import ArrayImages
from maqee.data.readers.coco import read_parts
from maqee.data.readers.registry import DataOptions, readers
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing

SIZE = (480, 640)  # of every image
_SPLITS = ("train", "val", "test")


@readers.register("bccd")
def read_bccd(options: DataOptions) -> Splits:
    """205 training, 87 calibration (the published validation set) and 72 test images, decoded into memory.

    The path is the tar, the folder it lies in as bccd*.tar, or the folder it was unpacked into. With `holdout`, train
    and val together lose so many images to calibration, and training sees the rest.
    """
    root = options.required_path("the tar of BCCD, or the folder it lies in")
    parts = read_parts(_find(root))
    if missing := [name for name in _SPLITS if name not in parts]:
        raise MaqeeError(f"{root} has no {missing[0]}.json: BCCD comes with {', '.join(_SPLITS)}.")
    train, val, test = (_decode(parts[name]) for name in _SPLITS)
    if options.holdout is None:
        return Splits(train, val, test)
    rest, calibration = hold_out(_join(train, val), options.holdout, options.seed, train.name, "bccd calibration")
    return Splits(rest, calibration, test)


def _find(root: Path) -> Path:
    if root.is_file() or (root / "train.json").is_file():
        return root
    tars = sorted(root.glob("bccd*.tar"))
    if len(tars) != 1:
        raise MaqeeError(f"{root} holds {len(tars)} files bccd*.tar, expected one: give its path.")
    return tars[0]


def _decode(part: ImageSet) -> ImageSet:
    """Into memory (0.9 MB an image), so that training does not decode the same file hundreds of times."""
    pieces = [
        part.images.load(torch.arange(start, min(start + 64, len(part))), Preprocessing(image_size=SIZE))
        for start in range(0, len(part), 64)
    ]
    names = [part.images.name(index) for index in range(len(part))]
    return replace(part, images=ArrayImages(torch.cat(pieces), names))


def _join(one: ImageSet, other: ImageSet) -> ImageSet:
    """The images of both, decoded already."""
    assert isinstance(one.images, ArrayImages)
    assert isinstance(other.images, ArrayImages)
    names = [part.images.name(index) for part in (one, other) for index in range(len(part))]
    images = ArrayImages(torch.cat([one.images.pixels, other.images.pixels]), names)
    most = max(one.targets.shape[1], other.targets.shape[1])
    return replace(one, images=images, targets=torch.cat([widen(part.targets, most) for part in (one, other)]))
