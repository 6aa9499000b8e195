"""`maqee report`: one page about one run, several, or a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import OUTPUT, Json
from maqee.cli.output import deliver


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...|TABLE",
            help="Folder written by `maqee compress`; several, side by side. Or the JSON file of `maqee table`, or the "
            "YAML file that it was made from.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="The page; its figures go into a folder of the same name.",
            show_default="RUN/report.html, report.html for several runs, TABLE.html beside its JSON file",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write one HTML page that opens offline: what was asked and got, why, and how to run it, with figures.

    The figures are written as SVG and PNG files too.
    """
    from maqee.report.write_report import write_report

    written = write_report(runs, out)
    folder = written.page.with_suffix("")
    deliver(written, lambda _: f"Report written to {written.page}, its figures to {folder}.", json)
