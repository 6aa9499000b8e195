"""Sheets of what every exit of a run makes of some images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maqee.device import pick_device
from maqee.disk import check_writable
from maqee.errors import MaqeeError
from maqee.evaluation.answers import answer
from maqee.evaluation.shown import open_shown
from maqee.progress import steps
from maqee.report.painters import make_painter
from maqee.report.sheet import draw_sheet, save_sheet


@dataclass(frozen=True)
class Pictures:
    """What was drawn.

    Attributes:
        folder: where the pictures are.
        files: one PNG an image.
    """

    folder: Path
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"folder": str(self.folder), "files": [path.name for path in self.files]}


def show(
    run: str | Path,
    out: str | Path,
    *,
    images: int = 8,
    split: str = "test",
    data_root: str | Path | None = None,
    stage: str | None = None,
    threshold: float | None = None,
    device: str | None = None,
    progress: bool = True,
) -> Pictures:
    """Draw what every exit makes of some images: a PNG for each, spread evenly over the split, SPLIT-NUMBER.png.

    Args:
        run: a folder written by `maqee train` or `maqee compress`.
        out: folder for the pictures.
        images: how many, or as many as there are.
        split: "test" or "calibration".
        data_root: where the data lie now; where they lay when left out.
        stage: of a trained run, the stage to show; the last one when left out.
        threshold: of a trained run, the confidence at which an exit is taken; a compressed one follows its plan.
        device: where to run; the CPU when left out.
        progress: show how much is done, with the time left.
    """
    run, out = Path(run), Path(out)
    if images < 1:
        raise MaqeeError(f"images: {images} must be at least 1.")
    if not run.is_dir():
        raise MaqeeError(f"{run} is no folder: give one written by maqee train or maqee compress.")
    if out.exists() and not out.is_dir():
        raise MaqeeError(f"out: {out} is a file: give a folder for the pictures.")
    check_writable(out)
    shown = open_shown(run, None if data_root is None else Path(data_root), split, stage, threshold)
    shown.network.to(pick_device(device or "cpu")).eval()
    written = []
    chosen = spread(len(shown.data), images)
    with steps("drawing", len(chosen), enabled=progress) as bar:
        for count, index in enumerate(chosen, start=1):
            example = answer(shown.network, shown.policy, shown.data, index, shown.task)
            painter = make_painter(shown.data.kind.name, example, shown.data.classes)
            file = out / f"{split}-{index:05}.png"
            save_sheet(draw_sheet(shown, example, painter), file)
            written.append(file)
            bar.update(count)
    return Pictures(out, tuple(written))


def spread(total: int, count: int) -> list[int]:
    """So many numbers below `total`, evenly spread; all if there are fewer.

    Example:
        >>> spread(10, 3), spread(2, 5)
        ([0, 3, 6], [0, 1])
    """
    count = min(count, total)
    return [place * total // count for place in range(count)]
