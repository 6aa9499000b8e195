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
Resize = Annotated[int | None, typer.Option(help="Short side before the crop; the checkpoint's own.")]
Mean = Annotated[
    str | None, typer.Option(help="Mean of each channel, e.g. 0.5,0.5,0.5, or one for all; the checkpoint's own.")
]
Std = Annotated[str | None, typer.Option(help="Standard deviation of each channel, likewise; the checkpoint's own.")]
Resample = Annotated[
    str | None, typer.Option(help="nearest, box, bilinear, hamming, bicubic or lanczos; the checkpoint's own.")
]
Exif = Annotated[bool | None, typer.Option(help="Turn pictures as their EXIF data says; the checkpoint's own, or yes.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda; the GPU if there is one.")]
Figures = Annotated[Path | None, typer.Option(help="Write the figures to this JSON file.", callback=writable)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_numbers(text: str | None, option: str) -> list[float] | None:
    """Numbers with commas between them; nothing where the option is left out."""
    from maqee.errors import MaqeeError

    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise MaqeeError(f"{option} {text!r} must be numbers with commas between them.") from error
