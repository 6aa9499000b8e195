"""One piece of work of a table, as plain values that travel to other processes: a model, its test pass, or a row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from maqee.tables.cases import Case

MODELS, MODEL = "models", "model"  # the folder of models that rows share, and of one of them the model itself
PASSES, RECORD = "passes", "record.safetensors"  # the same of passes over the test images
PREPARED, TESTED, ROW, TIMES, ERROR = "prepared.json", "tested.json", "row.json", "times.json", "error.txt"

Kind = Literal["model", "pass", "row"]
_LAST: dict[Kind, str] = {"model": PREPARED, "pass": TESTED, "row": ROW}


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
        needs: folders of the work that must be finished before; of a row the model that it measures comes first.
        kind: make a model, let it pass over the test images, or measure a row.
        row: what to measure; None where no row is measured.
        record: folder of the pass over the test images that a row reads; None where it makes its own.
        effort: roughly how long it takes, beside others.
        fitted: the same for searches of the same fitted model, of which a process remembers what it has measured.
    """

    folder: str
    case: Case
    needs: tuple[str, ...] = ()
    kind: Kind = "model"
    row: Measuring | None = None
    record: str | None = None
    effort: float = 1.0
    fitted: str = ""

    def finished(self, root: Path) -> bool:
        """Whether the file is there that is written last."""
        return (root / self.folder / _LAST[self.kind]).is_file()


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
