"""`maqee.evaluate`: figures of a run, whatever kind of run it is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, overload

from maqee.errors import MaqeeError
from maqee.evaluation.compressed import evaluate_compressed
from maqee.evaluation.frontier_plans import FrontierEvaluation, evaluate_frontier
from maqee.evaluation.results import Evaluation
from maqee.evaluation.trained import evaluate_trained
from maqee.runs import is_compressed


@overload
def evaluate(
    run: str | Path,
    *,
    data_root: str | Path | None = None,
    split: str = "test",
    stage: str | None = None,
    task: str | None = None,
    device: str | None = None,
    controlled: float | None = None,
    frontier: Literal[False] = False,
) -> Evaluation: ...


@overload
def evaluate(
    run: str | Path,
    *,
    data_root: str | Path | None = None,
    split: str = "test",
    stage: str | None = None,
    task: str | None = None,
    device: str | None = None,
    controlled: float | None = None,
    frontier: Literal[True],
) -> FrontierEvaluation: ...


@overload
def evaluate(
    run: str | Path,
    *,
    data_root: str | Path | None = None,
    split: str = "test",
    stage: str | None = None,
    task: str | None = None,
    device: str | None = None,
    controlled: float | None = None,
    frontier: bool,
) -> Evaluation | FrontierEvaluation: ...


def evaluate(
    run: str | Path,
    *,
    data_root: str | Path | None = None,
    split: str = "test",
    stage: str | None = None,
    task: str | None = None,
    device: str | None = None,
    controlled: float | None = None,
    frontier: bool = False,
) -> Evaluation | FrontierEvaluation:
    """The metric of every exit and of policies, for a folder of `maqee train`, `maqee exits` or `maqee compress`.

    Args:
        run: the folder.
        data_root: where the data lie now; where they lay when left out.
        split: "test" or "calibration".
        stage: of a trained run, the stage to evaluate; the last one when left out.
        task: of a trained run, the task with another confidence, for example "segmentation-median".
        device: the GPU if there is one.
        controlled: of a compressed run, the accuracy that controlled performance must reach on calibration images; as
            in the paper, what the quantized model reaches at full depth when left out.
        frontier: of a compressed run with a frontier, all its plans instead of the one.
    """
    folder, root = Path(run), None if data_root is None else Path(data_root)
    if not is_compressed(folder):
        if frontier:
            raise MaqeeError(
                f"{folder} holds no compressed model: maqee compress with search.frontier=true makes frontiers."
            )
        if controlled is not None:
            raise MaqeeError(
                f"controlled: {folder} holds no compressed model: maqee baselines {folder} has full precision too."
            )
        return evaluate_trained(folder, root, split, stage, device, task)
    if stage is not None or task is not None:
        raise MaqeeError(f"{folder} holds a compressed model: stage and task are for folders of maqee train.")
    if frontier:
        if controlled is not None:
            raise MaqeeError("controlled: the plans of a frontier have targets of their own: leave one of them out.")
        return evaluate_frontier(folder, root, split, device)
    return evaluate_compressed(folder, root, split, device, controlled)
