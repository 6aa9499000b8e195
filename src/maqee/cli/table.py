"""`maqee table`: a grid of runs from one file, and its rendering."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from maqee.cli.options import ASK, OUTPUT, RUNNING, DataRoot, Device, Json, writable
from maqee.cli.output import deliver

LOCAL = "local"


class RayMayStandAlone(TyperCommand):
    """A command whose option --ray needs no address: alone it is a cluster of this machine."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a lone --ray its address."""
        alone = [index for index, word in enumerate(args) if word == "--ray" and not _follows_value(args, index)]
        for index in alone:
            args[index] = f"--ray={LOCAL}"
        return super().parse_args(ctx, args)


def _follows_value(args: list[str], index: int) -> bool:
    return index + 1 < len(args) and not args[index + 1].startswith("-")


def table(
    file: Annotated[
        Path, typer.Argument(metavar="TABLE", help="YAML file of a table; to render alone, also its JSON file.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ROW", help="Do this row only; repeatable.", rich_help_panel=ASK),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds of every row.",
            show_default="the file's: 10, with training 3",
            min=1,
            rich_help_panel=ASK,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of the file, e.g. models.lgvit=runs/mine; repeatable, stronger than the file.",
            rich_help_panel=ASK,
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(help="Runs side by side, each in a process of its own.", min=1, rich_help_panel=RUNNING),
    ] = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Work on a Ray cluster: at an address, auto, or alone on one of this machine with --jobs workers.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder for the runs.", show_default="runs/tables/NAME", rich_help_panel=OUTPUT),
    ] = None,
    data_root: DataRoot = None,
    device: Device = None,
    render: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Run nothing; show the finished table as text, markdown, latex or html.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the table to this JSON file; with --render, the rendering to this file.",
            show_default="results/tables/NAME.json",
            callback=writable,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Do the runs of a table that are not finished yet, several side by side if you like, and show it.

    A run that fails is reported at the end (exit code 1), and the others are done.

    Run it again to go on after a stop.
    """
    from maqee.report.finished_table import json_of
    from maqee.report.grid_formats import render_table
    from maqee.tables.table_file import read_table
    from maqee.tables.table_run import table as run_table

    if render is not None:
        _render(file, render, assignments or (), out)
        return
    out = out or json_of(read_table(file, assignments or ()).name)
    done = run_table(
        file,
        only=only or (),
        seeds=seeds,
        assignments=assignments or (),
        jobs=jobs,
        ray=ray,
        runs=runs,
        data_root=data_root,
        out=writable(out),
        device=device,
    )
    deliver(done, render_table, json, out)
    for folder, reason in done.failures.items():
        typer.echo(f"failed: {folder}: {reason}", err=True)
    if done.failures:
        raise typer.Exit(1)


def _render(file: Path, form: str, assignments: Any, out: Path | None) -> None:
    from maqee.io import read_json, write_text
    from maqee.report.finished_table import json_of
    from maqee.report.grid_formats import render_table
    from maqee.tables.table_file import read_table

    found = file if file.suffix == ".json" else json_of(read_table(file, assignments).name)
    text = render_table(read_json(found), form)
    if out is None:
        typer.echo(text)
    else:
        write_text(out, f"{text}\n")
        typer.echo(f"Written to {out}.")
