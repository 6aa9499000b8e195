"""`maqee show`: pictures of what every exit makes of some images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import DataRoot


def show(
    run: Annotated[Path, typer.Argument(help="A folder written by `maqee train` or `maqee compress`.")],
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")],
    images: Annotated[int, typer.Option(help="How many images, spread evenly over the split.")] = 8,
    split: Annotated[str, typer.Option(help="test or calibration.")] = "test",
    data_root: DataRoot = None,
    stage: Annotated[str | None, typer.Option(help="Of a trained run, e.g. 2-joint; the last when left out.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Of a trained run: the confidence at which an exit is taken; 0.8.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu (when left out) or cuda.")] = None,
) -> None:
    """Draw input, truth and the answer of every exit, with the exit that is taken, as one PNG an image."""
    from maqee.report import show_run

    written = show_run(run, out, images, split, data_root, stage, threshold, device, show=True)
    noun = "picture" if len(written) == 1 else "pictures"
    typer.echo(f"{len(written)} {noun} written to {out}, the first is {written[0].name}.")
