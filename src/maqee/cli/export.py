"""`maqee export`: a model for other engines, in a folder that runs without maqee."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import OUTPUT, FinishedRun, Json, Stage
from maqee.cli.output import deliver


def export(
    run: FinishedRun,
    *,
    stage: Stage = None,
    out: Annotated[Path, typer.Option(help="Folder to write.", rich_help_panel=OUTPUT)],
    format: Annotated[str, typer.Option(help="onnx or openvino.", rich_help_panel=OUTPUT)] = "onnx",
    json: Json = False,
) -> None:
    """Write a model as one file a segment, with a short program that runs it without maqee."""
    from maqee.runtime.export.exported import export as write

    found = write(run, out, format, stage)
    size = f"{found.bytes / 2**20:.2f} MiB"
    line = f"{len(found.files)} files, {size}, written to {out}: try python {out / 'run.py'} PICTURE."
    deliver(found, lambda _: line, json)
