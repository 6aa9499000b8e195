"""`maqee diagnose`: the theory, measured on a compressed model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import DataRoot, Device, Figures, Json


def diagnose(
    run: Annotated[Path, typer.Argument(help="A folder written by `maqee compress`.")],
    data_root: DataRoot = None,
    model: Annotated[Path | None, typer.Option(help="Where the full-precision model lies now.")] = None,
    images: Annotated[int, typer.Option(help="Calibration images to look at.")] = 256,
    json: Json = False,
    out: Figures = None,
    device: Device = None,
) -> None:
    """Measure the paper's theorems: exits that quantization turns round, error that grows with depth, order of blocks.

    Exit code 1 if a bound does not hold, which no correct recording can do.
    """
    from maqee.evaluation.diagnose import diagnose_run
    from maqee.io import to_json, write_json
    from maqee.report.diagnosis_table import diagnosis_table

    result = diagnose_run(run, data_root, model, images, device)
    typer.echo(to_json(result) if json else diagnosis_table(result), nl=not json)
    if out is not None:
        write_json(out, result)
        if not json:
            typer.echo(f"Written to {out}.")
    if result["violated"] is not None:
        typer.echo(f"error: {result['violated']}", err=True)
        raise typer.Exit(1)
