"""`maqee demo`: the main job on bundled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value for the recipe of the digits, e.g. stages.0.epochs=2.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for everything the demo writes.")] = Path("runs/demo"),
) -> None:
    """Train a small vision transformer with exits on 1,077 handwritten digits, and compress it."""
    from maqee.compression.demo import run_demo
    from maqee.io import write_json
    from maqee.report.tables import demo_table

    result = run_demo(out, overrides).to_json()
    typer.echo(demo_table(result))
    write_json(out / "result.json", result)
    typer.echo(f"\nWritten to {out / 'result.json'}. Next: maqee diagnose {out / result['plan']['folder']}")
