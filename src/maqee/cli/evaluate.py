"""`maqee eval`: figures of a trained run on the test images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import Device, Figures


def evaluate(
    run: Annotated[Path, typer.Argument(help="A folder written by `maqee train` or `maqee compress`.")],
    path: Annotated[Path | None, typer.Option(help="Where the data lies now; the recipe's path when left out.")] = None,
    split: Annotated[str, typer.Option(help="test or calibration.")] = "test",
    stage: Annotated[str | None, typer.Option(help="e.g. 2-joint; the last one when left out.")] = None,
    out: Figures = None,
    device: Device = None,
    task: Annotated[
        str | None, typer.Option(help="The task with another confidence, e.g. segmentation-median (see `maqee ls`).")
    ] = None,
) -> None:
    """Evaluate every exit, and one shared threshold swept from eager to never."""
    from maqee.compression.run_folder import is_compressed
    from maqee.errors import MaqeeError
    from maqee.evaluation.compressed import evaluate_compressed
    from maqee.evaluation.trained import evaluate_run
    from maqee.io import write_json
    from maqee.report.tables import compressed_table, exit_table, policy_table

    if is_compressed(run):
        if stage is not None or task is not None:
            raise MaqeeError(f"{run} holds a compressed model: --stage and --task are for folders of maqee train.")
        result = evaluate_compressed(run, path=path, split=split, device=device)
        typer.echo(compressed_table(result))
    else:
        result = evaluate_run(run, path=path, split=split, stage=stage, device=device, task=task)
        typer.echo(exit_table(result))
        if result["policies"]:
            typer.echo("")
            typer.echo(policy_table(result))
    if out is not None:
        write_json(out, result)
        typer.echo(f"Written to {out}.")
