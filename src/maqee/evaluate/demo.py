"""The whole method on the bundled digits: train, quantize, choose bits and thresholds, compare on the test images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from maqee.apq import BitSettings, Budget, SearchOptions, Trace, bops, choose_thresholds, least_cost_problem
from maqee.apq import policy_figures as traced_figures
from maqee.compress.folder import compress_folder, find_model, load
from maqee.compress.measure import ModelMeasure, bit_settings
from maqee.compress.run import CompressOptions, draw_images, fit_model, load_batches
from maqee.compress.solvers import search_options
from maqee.data import ImageSet, Splits, open_data
from maqee.environment import describe_environment
from maqee.evaluate.exits import measure_exits, metric_figures, policy_figures
from maqee.exits import EarlyExitModel, Policy
from maqee.quant import QuantizedModel
from maqee.tasks import tasks
from maqee.threads import one_thread
from maqee.train import read_recipe, run_recipe
from maqee.train.shipped import find_recipe

STANDARD = 0.8  # the threshold of all exits that published early-exit models come with
OPTIONS = CompressOptions(samples=328, scored=164)  # with 32 to fit grids, all of the calibration images


@one_thread()  # the model is a miniature
def run_demo(out: Path, overrides: list[str] | None = None) -> dict[str, Any]:
    """Train and compress; full precision, uniform 4 bits and the method side by side.

    The method is asked to be as accurate as full precision on calibration images, so that it only has to be cheaper, or
    where 4 bits do not reach that, to come as near as uniform bits do. Test images are looked at once, at the end.

    Args:
        out: folder for everything.
        overrides: of the recipe for digits.
    """
    run_recipe(read_recipe(find_recipe("digits"), overrides), out, device="cpu")
    network = EarlyExitModel.load(find_model(out)[0], tasks["classification"].confidence).eval()
    splits = open_data("digits")
    uniform, trace = fit_uniform(network, splits)
    folder, asked = out / "compressed", reachable(trace)
    how = search_options("coordinate")
    compress_folder(out, "digits", None, folder, Budget(min_metric=asked), how, OPTIONS, "cpu")
    compressed = load(folder)
    plan = compressed.plan
    measuring = draw_images(splits.calibration, OPTIONS)[1]
    assert isinstance(uniform.model, EarlyExitModel)
    assert plan.expected is not None
    never, standard = Policy.never(network.num_exits), Policy.same(STANDARD, network.num_exits)
    full, four = BitSettings.uniform(32, 32, network.backbone.depth), bit_settings(uniform, uniform.block_bits)
    rows = []
    for model, bits, policies in (
        (network, full, {"full precision": never, "full precision, exits at 0.8": standard}),
        (uniform.model, four, {"uniform 4 bits": never, "uniform 4 bits, exits at 0.8": standard}),
        (compressed.model, plan.bit_settings, {"MAQEE": plan.policy}),
    ):
        tested, calibrated = (policy_rows(model, data, bits, policies) for data in (splits.test, measuring))
        for row, other in zip(tested, calibrated, strict=True):
            rows.append({**row, "calibration_accuracy": other["accuracy"]})
    return {
        "data": splits.test.name,
        "images": len(splits.test),
        "calibration_images": len(measuring),
        "full_precision_on_calibration": trace.float_metric,
        "asked_on_calibration": asked,
        "expected_elsewhere": plan.expected.metric,
        "accuracy_is": "simulated",
        "plan": {"bits": list(plan.bits), "thresholds": list(plan.thresholds), "folder": folder.name},
        "rows": rows,
        "environment": describe_environment(),
    }


def fit_uniform(network: EarlyExitModel, splits: Splits) -> tuple[QuantizedModel, Trace]:
    """The method's own quantization at 4 bits everywhere, and its calibration pass."""
    device, how = torch.device("cpu"), SearchOptions()
    fitting, measuring = draw_images(splits.calibration, OPTIONS)
    widths = tuple(range(how.bit_min, how.bit_max + 1))  # all that the search has, so that both are the same at 4 bits
    quantized = fit_model(network, fitting, widths, OPTIONS, device)
    batches = load_batches(measuring, network, device)
    measure = ModelMeasure(network, quantized, batches, tasks[OPTIONS.task], "")
    return quantized, measure.trace((OPTIONS.quantization.weight_bits,) * measure.depth)


def reachable(trace: Trace) -> float:
    """What is nearest to the full-precision metric on calibration images among all policies of the quantized model."""
    problem = least_cost_problem(trace, trace.float_metric)
    found = choose_thresholds(problem, (STANDARD,) * trace.exits)
    return min(trace.float_metric, traced_figures(trace, found.thresholds).metric)


def policy_rows(
    model: EarlyExitModel, data: ImageSet, bits: BitSettings, policies: dict[str, Policy]
) -> list[dict[str, Any]]:
    """Accuracy, mean exit and cost of policies by name."""
    task = tasks["classification"]
    measured = measure_exits(model, data, task, list(policies.values()))
    full = bops(model.parts(), BitSettings.uniform(32, 32, model.backbone.depth))
    rows = []
    for (name, policy), metric in zip(policies.items(), measured.policies, strict=True):
        figures = policy_figures(model, measured.record, policy, bits, metric_figures(task, metric))
        rows.append({"name": name, **figures, "share_of_full_precision": figures["bops"] / full})
    return rows
