"""`maqee profile`: what leaving at each exit takes on an engine."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import (
    QUANTIZATION,
    RUNNING,
    CommonSteps,
    Device,
    Engine,
    Figures,
    Json,
    Method,
    Patch,
    Stage,
    TrainedRun,
    split_words,
)
from maqee.cli.output import deliver


def profile(
    run: TrainedRun,
    engine: Engine = "torch",
    batch: Annotated[int, typer.Option(help="Images at a time.", min=1, rich_help_panel=RUNNING)] = 8,
    repeats: Annotated[int, typer.Option(help="Timed repetitions.", min=1, rich_help_panel=RUNNING)] = 20,
    stage: Stage = None,
    bits: Annotated[
        str | None,
        typer.Option(
            help="Pairs of widths to time, e.g. W4A4,W5A7: a trained run is quantized with each, on noise.",
            show_default="the run as it is",
            rich_help_panel=QUANTIZATION,
        ),
    ] = None,
    method: Method = "erq",
    patch: Patch = None,
    common_steps: CommonSteps = False,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time the roads between exits on an engine; `maqee compress --cost FILE` then searches for the least time."""
    from maqee.bench.roads import profile as profile_model
    from maqee.report.road_table import road_table

    found = profile_model(
        run,
        engine=engine,
        batch=batch,
        bits=split_words(bits) if bits else (),
        method=method,
        patch=patch,
        common_steps=common_steps,
        device=device,
        stage=stage,
        repeats=repeats,
    )
    deliver(found, road_table, json, out)
