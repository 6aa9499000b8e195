"""`maqee search`: other thresholds for a recorded trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import Json, MaxBops, MaxDrop, MinAccuracy


def search(
    trace: Annotated[Path, typer.Option(help="A trace, or a folder written by `maqee compress`.")],
    max_bops: MaxBops = None,
    min_accuracy: MinAccuracy = None,
    max_drop: MaxDrop = None,
    lambda_outer: Annotated[float, typer.Option(help="Price of cost.")] = 0.5,
    solver: Annotated[str, typer.Option(help="coordinate, or exact: the best of all on the grid.")] = "coordinate",
    frontier: Annotated[
        bool, typer.Option("--frontier", help="The cheapest policy for each of many accuracies and prices.")
    ] = False,
    against: Annotated[
        Path | None, typer.Option(help="A plan of the same model and bits to compare with; the one beside the trace.")
    ] = None,
    json: Json = False,
    out: Annotated[Path | None, typer.Option(help="Write a plan with the thresholds found to this file.")] = None,
) -> None:
    """Choose thresholds again, at the bits of a trace, in seconds and without the model.

    A trace is one allocation: bits cannot be changed here; `maqee compress` does that.
    """
    from maqee.apq import Budget
    from maqee.errors import MaqeeError
    from maqee.evaluation.trace_search import find_frontier, find_thresholds, open_trace, revised_plan
    from maqee.io import to_json
    from maqee.report.tables import frontier_table, search_table

    budget = Budget(max_bops=max_bops, min_metric=min_accuracy, max_drop=max_drop)
    if frontier and (out is not None or budget != Budget()):
        raise MaqeeError("--frontier shows many policies: leave out --out, --max-bops, --min-accuracy and --max-drop.")
    recorded = open_trace(trace, against)
    if frontier:
        result = find_frontier(recorded, solver)
        typer.echo(to_json(result) if json else frontier_table(result), nl=not json)
        return
    result = find_thresholds(recorded, budget, solver, lambda_outer)
    if out is not None:
        revised_plan(recorded, budget, solver, lambda_outer, result).save(out)
    typer.echo(to_json(result) if json else search_table(result), nl=not json)
    if out is not None and not json:
        typer.echo(f"Written to {out}.")
