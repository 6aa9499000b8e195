"""`maqee train`: run a training recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped recipe (see `maqee ls`).")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value with dotted keys, e.g. stages.0.epochs=2 data.path=DIR.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; runs/NAME when left out.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; the GPU if there is one.")] = None,
) -> None:
    """Train a backbone, its exits, or both, as a recipe says. Run it again to go on after a stop."""
    from maqee.training import read_recipe, run_recipe
    from maqee.training.shipped import find_recipe

    chosen = read_recipe(find_recipe(recipe), overrides)
    folder = out or Path("runs") / chosen.name
    summary = run_recipe(chosen, folder, device)
    for stage in summary["stages"]:
        figures = "  ".join(f"{name} {value:.2%}" for name, value in stage["calibration"].items())
        typer.echo(f"{stage['stage']:<20} {stage['train_seconds']:>8.1f} s   calibration: {figures}")
    typer.echo(f"Written to {folder}. Next: maqee eval {folder}")
