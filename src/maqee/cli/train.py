"""`maqee train`: run a training recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maqee.cli.options import OUTPUT, Device, Json
from maqee.cli.output import deliver

if TYPE_CHECKING:
    from maqee.training.train_run import Training


def train(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a shipped recipe (see `maqee ls`)."),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Other values, with dotted keys: stages.0.epochs=2 data.path=DIR."),
    ] = None,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/NAME when left out.", rich_help_panel=OUTPUT)
    ] = None,
    json: Json = False,
) -> None:
    """Train a backbone, its exits, or both, as a recipe says. Run it again to go on after a stop."""
    from maqee.training import train as run_training

    print_summary(run_training(recipe, overrides, out, device), "eval", json)


def print_summary(done: Training, following: str, json: bool = False) -> None:
    """What came of a training, stage by stage, and the verb that comes next."""
    lines = []
    for stage in done.stages:
        figures = "  ".join(f"{name} {value:.2%}" for name, value in stage.calibration.items())
        lines.append(f"{stage.stage:<20} {stage.train_seconds:>8.1f} s   calibration: {figures}")
    lines.append(f"Written to {done.folder}. Next: maqee {following} {done.folder}")
    deliver(done, lambda _: "\n".join(lines), json)
