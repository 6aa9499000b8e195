"""`maqee eval`: figures of a trained or compressed run on the test images."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import MODEL, Controlled, DataRoot, Device, Figures, FinishedRun, Json, Split, Stage, Task
from maqee.cli.output import deliver


def evaluate(
    run: FinishedRun,
    stage: Stage = None,
    frontier: Annotated[
        bool,
        typer.Option("--frontier", help="Every plan under RUN/frontier instead of RUN's own.", rich_help_panel=MODEL),
    ] = False,
    controlled: Controlled = None,
    split: Split = "test",
    data_root: DataRoot = None,
    task: Task = None,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Evaluate every exit, and one shared threshold swept from eager to never; of a compressed run its plan too.

    A plan is shown by both protocols of the paper: as it is (standard configuration), and moved to --controlled, which
    is the quantized model's own accuracy at full depth when left out.

    --task may name the run's task with another confidence, e.g. segmentation-median.
    """
    from maqee.evaluation import evaluate as evaluate_run
    from maqee.report.frontier_plans_table import frontier_plans_table
    from maqee.report.tables import evaluation_table

    found = evaluate_run(
        run,
        data_root=data_root,
        split=split,
        stage=stage,
        task=task,
        device=device,
        controlled=controlled,
        frontier=frontier,
    )
    deliver(found, frontier_plans_table if frontier else evaluation_table, json, out)
