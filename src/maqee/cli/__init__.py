"""The command line. Each verb is one file that parses, calls one library function and prints.

Verbs import what they need when they are called, so that `maqee --help` is quick.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text

from maqee.cli import (
    baselines,
    bench,
    compress,
    cost,
    demo,
    diagnose,
    envelope,
    evaluate,
    exits,
    export,
    list_,
    predict,
    profile,
    quantize,
    report,
    search,
    show,
    table,
    train,
    what,
)
from maqee.cli.errors import translate
from maqee.errors import MaqeeError, is_gpu_out_of_memory
from maqee.freed_memory import keep_freed
from maqee.threads import wait_passively

NO_GPU_MEMORY = (
    "The GPU ran out of memory: end other programs on it, use smaller batches or fewer jobs where the command has "
    "options for them, or another device (--device)."
)

app = typer.Typer(
    name="maqee",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from maqee.environment import version

        typer.echo(f"maqee {version()}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Cheap vision transformers: early exits and mixed precision, chosen together."""


app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("exits")(exits.exits)
app.command("eval")(evaluate.evaluate)
app.command("quantize")(quantize.quantize)
app.command("compress")(compress.compress)
app.command("search")(search.search)
app.command("diagnose")(diagnose.diagnose)
app.command("baselines")(baselines.baselines)
app.command("envelope")(envelope.envelope)
app.command("table", cls=table.RayMayStandAlone)(table.table)
app.command("predict")(predict.predict)
app.command("profile")(profile.profile)
app.command("export")(export.export)
app.command("show")(show.show)
app.command("report")(report.report)
app.command("what")(what.what)
app.command("cost")(cost.cost)
app.command("ls")(list_.list_things)
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Run the command line; a user's mistake, or too small a GPU, is one sentence and exit code 2."""
    wait_passively()
    keep_freed()
    errors = Console(stderr=True, soft_wrap=True)
    logging.basicConfig(
        level=logging.WARNING,
        format="%(message)s",
        handlers=[RichHandler(console=errors, show_time=False, show_path=False, markup=False)],
    )
    try:
        app()
    except Exception as error:
        if isinstance(error, MaqeeError):
            words = translate(str(error))
        elif is_gpu_out_of_memory(error):
            words = NO_GPU_MEMORY
        else:
            raise
        errors.print(Text.assemble(("error: ", "bold red"), words))
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == 130:  # what the framework makes of Ctrl-C
            errors.print("Stopped. Run the same command again to go on.")
        raise
