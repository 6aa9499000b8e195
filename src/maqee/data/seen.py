"""Which images a model was trained on: a compact set of hashes beside its weights.

A model is too sure of images that it has learnt, so that thresholds chosen on them are too bold. Names and places of
files change; the content does not, and eight bytes of its hash are enough to know an image again among many millions.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maqee.data.dataset import ImageSet
from maqee.data.images import ImageSource
from maqee.errors import MaqeeError
from maqee.io import read_arrays_and_metadata, write_arrays
from maqee.runs import TRAINED_ON

logger = logging.getLogger(__name__)

MOST_SEEN = 0.1  # of the calibration images; a few are in both by mistakes of the data set's makers
_HEADER = {"format": "maqee-trained-on", "version": "1"}
_KEY = "images"

Hashes = NDArray[np.uint64]


def write_seen(folder: Path, images: ImageSource, source: str | Path) -> None:
    """Note the images that the model in a folder was trained on, and those that its source was trained on before.

    Args:
        folder: of the trained model.
        images: what it was trained on.
        source: where training began: a folder or a file, whose own list is added where there is one; or a name.
    """
    place = Path(source)
    earlier = _read(place.parent if place.is_file() else place) if place.exists() else None
    every = hashes_of(images) if earlier is None else np.concatenate([hashes_of(images), earlier])
    write_arrays(folder / TRAINED_ON, {_KEY: np.unique(every)}, _HEADER)


def count_seen(folder: Path, images: ImageSource) -> int | None:
    """How many images the model in a folder was trained on; None where the folder does not say."""
    seen = _read(folder)
    return None if seen is None else int(np.isin(hashes_of(images), seen).sum())


def check_unseen(folder: Path, calibration: ImageSet) -> int | None:
    """Complain if the model in a folder was trained on its calibration images, and say on how many of them."""
    seen = count_seen(folder, calibration.images)
    if seen:
        found = (
            f"{seen} of {len(calibration)} calibration images of {calibration.name} are among those that the model "
            "was trained on"
        )
        if seen > MOST_SEEN * len(calibration):
            raise MaqeeError(f"{found}, of which it is too sure: give the split of the training run, or other images.")
        logger.warning("%s: figures on them flatter it", found)
    return seen


def hashes_of(images: ImageSource) -> Hashes:
    """Eight bytes of the hash of each image's content, in order."""
    return np.frombuffer(b"".join(digest[:8] for digest in images.digests()), dtype="<u8").astype(np.uint64)


def _read(folder: Path) -> Hashes | None:
    path = folder / TRAINED_ON
    if not path.is_file():
        return None
    arrays, header = read_arrays_and_metadata(path)
    stored = arrays.get(_KEY)
    if header != _HEADER or stored is None or stored.dtype != np.uint64 or stored.ndim != 1:
        raise MaqeeError(f"{path} does not list hashes of images as this maqee does: restore the file.")
    return stored
