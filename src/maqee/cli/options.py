"""Options that several verbs share: one wording each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def writable(out: Path | None) -> Path | None:
    """Complain before hours of work, not after them, if the file of an option cannot be written."""
    from maqee.disk import check_writable_file

    if out is not None:
        check_writable_file(out)
    return out


TrainedModel = Annotated[
    Path, typer.Option(help="A model with exits: a run folder of `maqee train`, or one stage of it.")
]
TrainedData = Annotated[str, typer.Option(help="Data set that it was trained on (see `maqee ls`).")]
TrainedTask = Annotated[str | None, typer.Option(help="Task (see `maqee ls`); the one it was trained for.")]
DataRoot = Annotated[Path | None, typer.Option(help="Where the data lies.")]
MaxBops = Annotated[float | None, typer.Option(help="Most expected BOPs of an image.")]
MinAccuracy = Annotated[
    float | None,
    typer.Option(help="Least accuracy on calibration images, 0..1; of other tasks the mean score of an image."),
]
MaxDrop = Annotated[float | None, typer.Option(help="The same, as how far below full precision: 0.01 is one point.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda; the GPU if there is one.")]
Figures = Annotated[Path | None, typer.Option(help="Write the figures to this JSON file.", callback=writable)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
