"""`maqee show`: pictures of what every exit makes of some images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import DATA, MODEL, OUTPUT, RUNNING, DataRoot, FinishedRun, Json, Split, Stage
from maqee.cli.output import deliver


def show(
    run: FinishedRun,
    *,
    stage: Stage = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Confidence at which an exit of a training run is taken; a compressed run follows its plan.",
            show_default="0.8",
            rich_help_panel=MODEL,
        ),
    ] = None,
    images: Annotated[
        int, typer.Option(help="Number of images, spread evenly over the split.", rich_help_panel=DATA)
    ] = 8,
    split: Split = "test",
    data_root: DataRoot = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda.", show_default="cpu", rich_help_panel=RUNNING)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.", rich_help_panel=OUTPUT)],
    json: Json = False,
) -> None:
    """Draw input, truth and the answer of every exit, with the exit that is taken, as one PNG an image."""
    from maqee.report.show import show as draw

    pictures = draw(
        run,
        out,
        images=images,
        split=split,
        data_root=data_root,
        stage=stage,
        threshold=threshold,
        device=device,
    )
    count, first = len(pictures.files), pictures.files[0].name
    noun = "picture" if count == 1 else "pictures"
    deliver(pictures, lambda _: f"{count} {noun} written to {out}, the first is {first}.", json)
