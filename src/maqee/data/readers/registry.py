"""The registry of data sets that can be opened by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from maqee.data.classes import align_splits
from maqee.data.dataset import ImageSet, Splits
from maqee.errors import MaqeeError
from maqee.models import Backbone
from maqee.registry import Registry
from maqee.runs import DataSource


@dataclass(frozen=True)
class DataOptions:
    """What every reader understands.

    Attributes:
        path: file or folder; the bundled digits need none.
        holdout: how many training images become the calibration set; None is the data set's own default.
        seed: decides which.
    """

    path: Path | None = None
    holdout: int | None = None
    seed: int = 0

    def required_path(self, what: str) -> Path:
        """The path, checked."""
        if self.path is None:
            raise MaqeeError(f"This data set needs a path: give {what}.")
        if not self.path.exists():
            raise MaqeeError(f"{self.path} does not exist: give {what}.")
        return self.path


class Reader(Protocol):
    """Opens a data set."""

    def __call__(self, options: DataOptions) -> Splits:
        """Read it."""


readers: Registry[Reader] = Registry("data set")


def open_data(name: str, path: str | Path | None = None, holdout: int | None = None, seed: int = 0) -> Splits:
    """Open a data set by name.

    Example:
        >>> splits = open_data("digits")
        >>> len(splits.test)
        360
    """
    return readers[name](DataOptions(Path(path) if path is not None else None, holdout, seed))


def open_source(source: DataSource, backbone: Backbone) -> Splits:
    """The data set of a run, with its classes in the order of the model's."""
    return align_splits(open_data(source.name, source.path, source.holdout, source.seed), backbone)


def open_split(source: DataSource, backbone: Backbone, split: str) -> ImageSet:
    """The test or the calibration images of a run, split off as in training."""
    if split not in ("test", "calibration"):
        raise MaqeeError(f"split: {split!r} is not one of test, calibration.")
    splits = open_source(source, backbone)
    return splits.test if split == "test" else splits.calibration
