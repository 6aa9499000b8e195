"""`maqee eval`: figures of a trained run on the test images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import DataRoot, Device, Figures


def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder written by `maqee train` or `maqee compress`.")],
    data_root: DataRoot = None,
    split: Annotated[str, typer.Option(help="test or calibration.")] = "test",
    stage: Annotated[str | None, typer.Option(help="e.g. 2-joint; the last one when left out.")] = None,
    out: Figures = None,
    device: Device = None,
    task: Annotated[
        str | None, typer.Option(help="The task with another confidence, e.g. segmentation-median (see `maqee ls`).")
    ] = None,
) -> None:
    """Evaluate every exit, and one shared threshold swept from eager to never."""
    from maqee.evaluation import evaluate as evaluate_run
    from maqee.io import write_json
    from maqee.report.tables import evaluation_table

    result = evaluate_run(run, data_root=data_root, split=split, stage=stage, task=task, device=device).to_json()
    typer.echo(evaluation_table(result))
    if out is not None:
        write_json(out, result)
        typer.echo(f"Written to {out}.")
