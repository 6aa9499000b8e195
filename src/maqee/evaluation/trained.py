"""Evaluate what `maqee train` left in a run folder."""

from __future__ import annotations

from pathlib import Path

from maqee.apq.cost import total_macs, utilization
from maqee.data import open_split
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.evaluation.record import Measured, measure_exits, measure_policies, metric_figures
from maqee.evaluation.results import Evaluation, ExitFigures
from maqee.exits import EarlyExitModel, load_network
from maqee.exits.network import backbone_of
from maqee.policy import NEVER, Policy
from maqee.runs import require_data, require_recipe, stage_folder
from maqee.tasks import Task, tasks
from maqee.widths import BitSettings

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, NEVER)


def evaluate_trained(
    run: Path,
    data_root: Path | None = None,
    split: str = "test",
    stage: str | None = None,
    device: str | None = None,
    task: str | None = None,
) -> Evaluation:
    """The metric of every exit, and of a shared threshold, of a finished training run.

    All figures are in full precision. Those of policies are simulated: chosen from the outputs of all exits, which
    `EarlyExitModel.run` reproduces by really stopping. The arguments are those of `maqee.evaluate`.
    """
    recipe = require_recipe(run)
    folder = stage_folder(run, stage)
    chosen = tasks[task or recipe["task"]]
    network = load_network(folder, chosen.confidence).to(pick_device(device))
    data = open_split(require_data(run, path=data_root), backbone_of(network), split)
    data.require(chosen.targets, chosen.name)
    facts = {"stage": folder.name, "precision": "float32"}
    if isinstance(network, EarlyExitModel):
        thresholds = THRESHOLDS if network.num_exits else ()
        policies = [Policy.same(threshold, network.num_exits) for threshold in thresholds]
        bits = BitSettings.uniform(32, 32, network.backbone.depth)
        measured, rows = measure_policies(network, data, chosen, bits, policies, show=True)
        exits, facts = _exit_rows(network, measured, chosen), facts | {"policies_are": "simulated"}
    else:
        [metric] = measure_exits(network, data, chosen, show=True).exits
        macs = total_macs(network.parts())
        exits, rows = [ExitFigures(block=network.depth, metrics=metric_figures(chosen, metric), macs=macs)], []
    return Evaluation(
        run=recipe["name"],
        data=data.name,
        images=len(data),
        task=chosen.name,
        metric=chosen.metric_name,
        seed=recipe["seed"],
        exits=tuple(exits),
        policies=tuple(rows),
        facts=facts,
        environment=describe_environment(),
    )


def _exit_rows(model: EarlyExitModel, measured: Measured, task: Task) -> list[ExitFigures]:
    """One row an exit; its cost is that of a model which always leaves there, all exits before it being closed."""
    rows = []
    for index, block in enumerate(model.exit_blocks):
        mass = [float(other == index) for other in range(len(model.exit_blocks))]
        reach = utilization(mass, model.exit_blocks, model.backbone.depth)
        record = measured.record
        rows.append(
            ExitFigures(
                block=block,
                head=(*model.kinds, model.final_kind or "backbone")[index],
                metrics=metric_figures(task, measured.exits[index]),
                score=round(float(record.score[:, index].mean(dtype=float)), 6),
                loss=round(float(record.loss[:, index].mean(dtype=float)), 6),
                confidence=round(float(record.confidence[:, index].mean(dtype=float)), 6),
                macs=total_macs(model.parts(), reach, closed=model.positions[:index]),
            )
        )
    return rows
