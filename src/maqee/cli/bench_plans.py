"""`maqee bench plans`: finished models side by side on real images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import (
    DATA,
    OUTPUT,
    RUNNING,
    Compile,
    DataRoot,
    Device,
    Figures,
    Json,
    KnownData,
    Repeats,
    writable,
)
from maqee.cli.output import deliver


def plans(
    rows: Annotated[
        list[str],
        typer.Argument(
            metavar="ROW...",
            help="Models as RUN, RUN@ENGINE or RUN@ENGINE:STOP. RUN is any model folder; STOP is one threshold for all "
            "exits, such as 0.8, or full. Without STOP a plan is followed where there is one, else it is full depth.",
        ),
    ],
    data: KnownData = None,
    data_root: DataRoot = None,
    images: Annotated[int, typer.Option(help="Number of test images.", min=1, rich_help_panel=DATA)] = 1000,
    batch: Annotated[
        int | None,
        typer.Option(help="Images of a batch.", show_default="256 on a GPU, else 8", min=1, rich_help_panel=RUNNING),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32 or bf16.", show_default="bf16 on a GPU, else fp32", rich_help_panel=RUNNING),
    ] = None,
    compile: Compile = False,
    repeats: Repeats = 3,
    device: Device = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg",
            help="Draw accuracy against speed, as .svg or .png.",
            callback=writable,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Run the same test images through several models, and compare accuracy, speed and size side by side."""
    from maqee.bench.plans import bench_plans
    from maqee.report.plan_picture import check_ending, save_plan_picture
    from maqee.report.plan_rows_table import plan_rows_table

    if picture is not None:
        check_ending(picture)
    found = bench_plans(
        rows,
        data=data,
        data_root=data_root,
        images=images,
        batch_size=batch,
        repeats=repeats,
        device=device,
        precision=precision,
        compile=compile,
    )
    deliver(found, plan_rows_table, json, out)
    if picture is not None:
        save_plan_picture(found.to_json(), picture)
        if not json:
            typer.echo(f"Drawn to {picture}.")
