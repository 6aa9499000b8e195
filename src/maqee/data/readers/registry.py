"""The registry of data sets that can be opened by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from maqee.data.dataset import Splits
from maqee.errors import MaqeeError
from maqee.registry import Registry


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
