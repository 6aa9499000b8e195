"""`maqee search`: other thresholds for a recorded trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import (
    ASK,
    OUTPUT,
    SEARCH,
    Controlled,
    Figures,
    Json,
    MaxBops,
    MaxDrop,
    MaxMs,
    MinAccuracy,
    TargetOn,
    parse_objective,
    parse_target,
)
from maqee.cli.output import deliver


def search(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder written by `maqee compress`, or a trace in it.")],
    max_bops: MaxBops = None,
    max_ms: MaxMs = None,
    min_accuracy: MinAccuracy = None,
    max_drop: MaxDrop = None,
    target_on: TargetOn = None,
    controlled: Controlled = None,
    frontier: Annotated[
        bool,
        typer.Option(
            "--frontier", help="The cheapest policy for each of many accuracies and prices.", rich_help_panel=ASK
        ),
    ] = False,
    objective: Annotated[
        str | None,
        typer.Option(
            help="direct (what was asked for and nothing else), or paper (its J: risks plus cost).",
            show_default="the plan's own",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    lambda_outer: Annotated[
        float, typer.Option(help="With --objective paper: price of cost.", rich_help_panel=SEARCH)
    ] = 0.5,
    solver: Annotated[
        str, typer.Option(help="coordinate, or exact: the best of all candidates.", rich_help_panel=SEARCH)
    ] = "coordinate",
    against: Annotated[
        Path | None,
        typer.Option(
            help="A plan of the same model and bits to compare with; the one beside the trace when left out.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    save_plan: Annotated[
        Path | None,
        typer.Option(help="Write a plan with the thresholds found to this file.", rich_help_panel=OUTPUT),
    ] = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Choose thresholds again, at the bits of a compressed run, in seconds and without the model.

    Asked for nothing, it looks for the least cost at most one point below full depth at these bits.

    A trace is one allocation: bits cannot be changed here; `maqee compress` does that.
    """
    from maqee.apq import Budget
    from maqee.errors import MaqeeError
    from maqee.evaluation.trace_results import TraceSearch
    from maqee.evaluation.trace_search import search as search_trace
    from maqee.report.tables import frontier_table, search_table

    found = search_trace(
        run,
        budget=Budget(
            max_bops=max_bops,
            max_ms=max_ms,
            min_metric=min_accuracy,
            max_drop=max_drop,
            target_on=parse_target(target_on),
        ),
        solver=solver,
        objective=parse_objective(objective),
        lambda_outer=lambda_outer,
        against=against,
        controlled=controlled,
        frontier=frontier,
    )
    if not isinstance(found, TraceSearch):
        if save_plan is not None:
            raise MaqeeError("--save-plan: a frontier is many policies, and a plan holds one: leave out --frontier.")
        deliver(found, frontier_table, json, out)
        return
    if save_plan is not None:
        found.revised_plan().save(save_plan)
    deliver(found, search_table, json, out)
    if save_plan is not None and not json:
        typer.echo(f"Written to {save_plan}.")
