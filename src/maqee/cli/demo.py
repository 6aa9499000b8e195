"""`maqee demo`: the main job on bundled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo writes.")] = Path("runs/demo"),
) -> None:
    """Train a small vision transformer with exits on 1,077 handwritten digits and show what exits save."""
    from maqee.evaluate.run import evaluate_run
    from maqee.evaluate.tables import exit_table, policy_table
    from maqee.io import write_json
    from maqee.train import read_recipe, run_recipe
    from maqee.train.shipped import find_recipe

    run_recipe(read_recipe(find_recipe("digits")), out, device="cpu")
    result = evaluate_run(out, device="cpu")
    typer.echo(exit_table(result))
    typer.echo("")
    typer.echo(policy_table(result))
    write_json(out / "result.json", result)
    typer.echo(f"\nWritten to {out / 'result.json'}.")
