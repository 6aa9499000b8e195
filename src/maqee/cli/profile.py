"""`maqee profile`: what leaving at each exit takes on an engine."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import RUNNING, Device, Engine, Figures, Json, Stage, TrainedRun
from maqee.cli.output import deliver


def profile(
    run: TrainedRun,
    engine: Engine = "torch",
    batch: Annotated[int, typer.Option(help="Images at a time.", min=1, rich_help_panel=RUNNING)] = 8,
    repeats: Annotated[int, typer.Option(help="Timed repetitions.", min=1, rich_help_panel=RUNNING)] = 20,
    stage: Stage = None,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time the roads between exits on an engine; `maqee compress --cost FILE` then searches for the least time."""
    from maqee.bench.roads import profile as profile_model
    from maqee.report.road_table import road_table

    found = profile_model(run, engine=engine, batch=batch, device=device, stage=stage, repeats=repeats)
    deliver(found, road_table, json, out)
