"""`maqee diagnose`: the theory, measured on a compressed model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import DATA, MODEL, DataRoot, Device, Figures, Json
from maqee.cli.output import deliver


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder written by `maqee compress`.")],
    model: Annotated[
        Path | None,
        typer.Option(help="Where the full-precision model lies, if not where it was.", rich_help_panel=MODEL),
    ] = None,
    images: Annotated[int, typer.Option(help="Number of calibration images to look at.", rich_help_panel=DATA)] = 256,
    data_root: DataRoot = None,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Measure the paper's theorems: exits that quantization turns round, error that grows with depth, order of blocks.

    Exit code 1 if a bound does not hold, which no correct recording can do.
    """
    from maqee.evaluation.diagnose import diagnose as diagnose_run
    from maqee.report.diagnosis_table import diagnosis_table

    found = diagnose_run(run, data_root=data_root, model=model, images=images, device=device)
    deliver(found, diagnosis_table, json, out)
    if found.violated is not None:
        typer.echo(f"error: {found.violated}", err=True)
        raise typer.Exit(1)
