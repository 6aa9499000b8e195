"""Sheets of what every exit of a run makes of some images."""

from __future__ import annotations

from pathlib import Path

import torch

from maqee.errors import MaqeeError
from maqee.evaluation.answers import answer
from maqee.evaluation.shown import open_shown
from maqee.progress import steps
from maqee.report.painters import make_painter
from maqee.report.sheet import draw_sheet, save_sheet


def show_run(
    run: Path,
    out: Path,
    images: int = 8,
    split: str = "test",
    data_root: Path | None = None,
    stage: str | None = None,
    threshold: float | None = None,
    device: str | None = None,
    show: bool = False,
) -> list[Path]:
    """Write a PNG for each of some images, spread evenly over the split: SPLIT-NUMBER.png.

    Args:
        run: a folder written by `maqee train` or `maqee compress`.
        out: folder for the pictures.
        images: how many, or as many as there are.
        split: "test" or "calibration".
        data_root: where the data lie now; where they lay when left out.
        stage: of a trained run, the stage to show; the last one when left out.
        threshold: of a trained run, the confidence at which an exit is taken; a compressed one follows its plan.
        device: where to run; the CPU when left out.
        show: progress with the time left.
    """
    if images < 1:
        raise MaqeeError(f"images: {images} must be at least 1.")
    if not run.is_dir():
        raise MaqeeError(f"{run} is no folder: give one written by maqee train or maqee compress.")
    if out.exists() and not out.is_dir():
        raise MaqeeError(f"out: {out} is a file: give a folder for the pictures.")
    shown = open_shown(run, data_root, split, stage, threshold)
    shown.network.to(torch.device(device or "cpu")).eval()
    written = []
    chosen = spread(len(shown.data), images)
    with steps("drawing", len(chosen), enabled=show) as bar:
        for count, index in enumerate(chosen, start=1):
            example = answer(shown.network, shown.policy, shown.data, index, shown.task)
            painter = make_painter(shown.data.kind.name, example, shown.data.classes)
            file = out / f"{split}-{index:05}.png"
            save_sheet(draw_sheet(shown, example, painter), file)
            written.append(file)
            bar.update(count)
    return written


def spread(total: int, count: int) -> list[int]:
    """So many numbers below `total`, evenly spread; all if there are fewer.

    Example:
        >>> spread(10, 3), spread(2, 5)
        ([0, 3, 6], [0, 1])
    """
    count = min(count, total)
    return [place * total // count for place in range(count)]
