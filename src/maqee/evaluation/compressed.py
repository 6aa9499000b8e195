"""Figures of a compressed model on test images, and of the baselines it is compared with. All are simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from maqee.apq import (
    BitSettings,
    Plan,
    SearchOptions,
    Trace,
    bops,
    choose_thresholds,
    exit_costs,
    greedy_bits,
    least_cost_problem,
)
from maqee.compression.job import TRACE, CompressOptions, draw_images, fit_model, load_batches
from maqee.compression.model_measure import ModelMeasure, bit_settings
from maqee.compression.run_folder import SOURCE, check_classes, find_model, load
from maqee.data import ImageSet, Splits, open_data
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.evaluation.networks import short_name
from maqee.evaluation.record import measure_exits, metric_figures, policy_figures
from maqee.evaluation.trace_search import DROPS
from maqee.evaluation.trained import open_split
from maqee.exits import NEVER, EarlyExitModel, Policy
from maqee.io import read_json
from maqee.models.digest import weights_digest
from maqee.quant import QuantizedModel
from maqee.tasks import Task, tasks

STANDARD_THRESHOLDS = (0.6, 0.7, 0.8, 0.9, NEVER)


def evaluate_compressed(
    run: Path, path: Path | None = None, split: str = "test", device: str | None = None
) -> dict[str, Any]:
    """The plan's policy, every exit, and shared thresholds on the same quantized model.

    Args:
        run: a folder written by `maqee compress`.
        path: where the data lies now.
        split: "test" or "calibration".
        device: the GPU if there is one.
    """
    compressed = load(run)
    plan, model = compressed.plan, compressed.model
    source = read_json(run / SOURCE)["data"]
    data = open_split(source["data"], path or source["path"], source["holdout"], source["seed"], split)
    target = pick_device(device)
    trace = Trace.load(run / TRACE)
    wanted, policies = frontier_policies(trace)
    figures = measure_quantized(model.to(target), plan.bit_settings, data, tasks[plan.task], [plan.policy, *policies])
    for row, target_metric in zip(figures["frontier"], wanted, strict=True):
        row["calibration_target"] = round(target_metric, 6)
    return {
        **about_run(run, plan, data),
        "seed": plan.seed,
        "recovered": any(step.kind == "recovery" and step.accepted for step in plan.history),
        "full_precision_on_calibration": round(trace.float_metric, 6),
        **figures,
        "environment": describe_environment(),
    }


def about_run(run: Path, plan: Plan, data: ImageSet) -> dict[str, Any]:
    """What figures of a compressed model are figures of."""
    return {
        "run": run.name,
        "data": data.name,
        "images": len(data),
        "method": plan.method,
        "bits": list(plan.bits),
    }


def frontier_policies(trace: Trace) -> tuple[list[float], list[Policy]]:
    """The cheapest policies that lose at most so much of a full-depth score on calibration samples.

    Of the full-precision model's score, which is what users care for, and of the quantized model's own, which may lie
    far below it.

    Returns:
        The scores asked for, descending, and the policies; scores that the quantized model does not reach are left
        out, and so are those that no other policy comes of.
    """
    cost = float(exit_costs(trace)[-1])
    found: dict[tuple[float, ...], float] = {}
    for score in sorted(
        {base - drop for base in (trace.float_metric, trace.full_metric) for drop in DROPS}, reverse=True
    ):
        choice = choose_thresholds(least_cost_problem(trace, score, cost), (0.8,) * trace.exits)
        if choice.excess <= 0:
            found.setdefault(choice.thresholds, score)
    return list(found.values()), [Policy(thresholds) for thresholds in found]


def measure_quantized(
    model: EarlyExitModel, bits: BitSettings, data: ImageSet, task: Task, policies: Sequence[Policy] = ()
) -> dict[str, Any]:
    """Every exit's metric; metric, mean exit and cost of a plan's policy, a frontier's, and of shared thresholds."""
    shared = [Policy.same(threshold, model.num_exits) for threshold in STANDARD_THRESHOLDS]
    measured = measure_exits(model, data, task, [*policies, *shared], show=True)
    rows = [
        policy_figures(model, measured.record, policy, bits, metric_figures(task, metric))
        for policy, metric in zip([*policies, *shared], measured.policies, strict=True)
    ]
    full = bops(model.parts(), BitSettings.uniform(32, 32, model.backbone.depth))
    for row in rows:
        row["share_of_full_precision"] = row["bops"] / full
    exits: list[dict[str, Any]] = [
        {"block": block, **metric_figures(task, metric)}
        for block, metric in zip(model.exit_blocks, measured.exits, strict=True)
    ]
    names = {"task": task.name, "metric": task.metric_name, "score": task.score_name}
    found: dict[str, Any] = {**names, "accuracy_is": "simulated", "exits": exits}
    if policies:
        found |= {"plan": rows[0], "frontier": rows[1 : len(policies)]}
    return found | {"shared_thresholds": rows[len(policies) :]}


def compare_baselines(
    model: Path,
    data: str,
    data_root: Path | None,
    methods: Sequence[str],
    options: CompressOptions,
    device: str | None = None,
) -> dict[str, Any]:
    """Full precision and uniform bits by several methods, with the same exits and shared thresholds.

    MPTQ gets the bits of its own greedy choice, with the same average.
    """
    folder, recipe = find_model(model)
    task = tasks[options.task]
    network = EarlyExitModel.load(folder, task.confidence)
    splits = open_data(data, data_root, recipe.get("data", {}).get("holdout"), recipe.get("seed", 0))
    check_classes(network, splits)
    splits.test.require(task.targets, task.name)
    target = pick_device(device)
    network = network.to(target).eval()
    full = BitSettings.uniform(32, 32, network.backbone.depth)
    rows: list[dict[str, Any]] = [
        {"method": "float", "bits": None, **measure_quantized(network, full, splits.test, task)}
    ]
    rows[0]["accuracy_is"] = "full precision, policies simulated"
    for method in methods:
        quantized = _fit_baseline(network, splits, replace(options, method=method), target)
        assert isinstance(quantized.model, EarlyExitModel)
        bits = quantized.block_bits
        figures = measure_quantized(quantized.model, bit_settings(quantized, bits), splits.test, task)
        rows.append({"method": method, "bits": list(bits), **figures})
    return {
        "model": short_name(folder),
        "weights": weights_digest(network),
        "data": splits.test.name,
        "images": len(splits.test),
        "seed": options.seed,
        "rows": rows,
        "environment": describe_environment(),
    }


def _fit_baseline(
    network: EarlyExitModel, splits: Splits, options: CompressOptions, device: torch.device
) -> QuantizedModel:
    """A method at uniform bits; MPTQ at the bits that it chooses."""
    fitting, measuring = draw_images(splits.calibration, options)
    how = SearchOptions()
    average = options.quantization.weight_bits
    if options.method != "mptq":
        return fit_model(network, fitting, (average,), options, device)
    widths = tuple(range(how.bit_min, how.bit_max + 1))
    quantized = fit_model(network, fitting, widths, options, device)
    batches = load_batches(measuring, network, device)
    measure = ModelMeasure(network, quantized, batches, tasks[options.task], "", options.scored)
    uniform = (average,) * measure.depth
    trace = measure.trace(uniform)
    risks = measure.block_risks(uniform, [widths] * measure.depth, path=False)
    quantized.set_block_bits(greedy_bits(trace, risks, average * measure.depth, how))
    return quantized
