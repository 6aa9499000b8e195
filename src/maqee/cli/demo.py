"""`maqee demo`: the main job on bundled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import OUTPUT, Json
from maqee.cli.output import deliver


def demo(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value for the recipe of the digits, e.g. stages.0.epochs=2.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for everything the demo writes.", rich_help_panel=OUTPUT)] = Path(
        "runs/demo"
    ),
    json: Json = False,
) -> None:
    """Train a small vision transformer with exits on 1,077 handwritten digits, and compress it."""
    from maqee.compression.demo import RESULT
    from maqee.compression.demo import demo as run_demo
    from maqee.report.model_card import write_model_card
    from maqee.report.tables import demo_table
    from maqee.report.write_report import write_report

    result = run_demo(out, overrides)
    deliver(result, demo_table, json)
    page = write_report(out / result.folder).page
    write_model_card(out / result.folder)
    if not json:
        typer.echo(f"\nWritten to {out / RESULT}, with a report: {page}. Next: maqee diagnose {out / result.folder}")
