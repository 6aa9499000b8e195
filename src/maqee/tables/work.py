"""One piece of work of a table, as plain values that travel to other processes: make a model, or measure a row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from maqee.tables.cases import Case

MODELS, MODEL = "models", "model"  # the folder of models that rows share, and of one of them the model itself
PREPARED, ROW, TIMES, ERROR = "prepared.json", "row.json", "times.json", "error.txt"


@dataclass(frozen=True)
class Place:
    """Where a table is worked on.

    Attributes:
        root: the folder of all runs.
        data_root: where the data lie, if not where they were.
        device: the GPU if there is one.
        revision: of the sources when the work began; what is written meanwhile must not count as a change of them.
    """

    root: Path
    data_root: Path | None = None
    device: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Work:
    """One piece of work.

    Attributes:
        folder: below the root; also its name.
        case: the model that is made or measured.
        needs: folders of the work that must be finished before.
        row: what to measure; None where the model itself is made.
    """

    folder: str
    case: Case
    needs: tuple[str, ...] = ()
    row: Measuring | None = None

    @property
    def kind(self) -> Literal["model", "row"]:
        """Whether a model is made or a row measured."""
        return "model" if self.row is None else "row"

    def finished(self, root: Path) -> bool:
        """Whether the file is there that is written last."""
        return (root / self.folder / (PREPARED if self.row is None else ROW)).is_file()


@dataclass(frozen=True)
class Measuring:
    """What a row wants to know of a model.

    Attributes:
        name: of the row.
        seed: of the run.
        chosen: a threshold for all exits, or how thresholds are chosen.
        thresholds_from: the folder of another row's run that has the thresholds.
        target: of controlled performance: a number, the folder of a model whose full depth sets it, or None.
    """

    name: str
    seed: int
    chosen: float | str
    thresholds_from: str | None = None
    target: float | str | None = None
