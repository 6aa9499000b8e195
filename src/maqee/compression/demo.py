"""The whole method on the bundled digits: train, quantize, choose bits and thresholds, compare on the test images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maqee.apq import BitSettings, Budget, Trace, choose_thresholds, least_cost_problem, policy_figures
from maqee.compression.compress_options import CompressOptions
from maqee.compression.compress_run import compress
from maqee.compression.job import fit_model, load_batches
from maqee.compression.model_measure import ModelMeasure
from maqee.data import ImageSet, Splits, open_source
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.evaluation.calibration import draw_images
from maqee.evaluation.record import measure_policies
from maqee.evaluation.results import PolicyFigures
from maqee.exits import EarlyExitModel, load_with_exits
from maqee.io import write_json
from maqee.policy import Policy
from maqee.quant import QuantizedModel
from maqee.runs import model_folder, require_data
from maqee.runtime.loading import load
from maqee.tasks import tasks
from maqee.threads import one_thread
from maqee.training.recipe import read_recipe
from maqee.training.shipped import find_recipe
from maqee.training.trainer import run_recipe

RESULT = "result.json"
TASK = "classification"
STANDARD = 0.8  # the threshold of all exits that published early-exit models come with
OPTIONS = CompressOptions(task=TASK, samples=328, scored=164)  # with 32 to fit grids, all of the calibration images


@dataclass(frozen=True, kw_only=True)
class DemoRow:
    """One way to run the model, on test images and on the calibration images.

    Attributes:
        name: what it is.
        tested: figures on test images.
        calibration_accuracy: accuracy on the images that chose the plan.
    """

    name: str
    tested: PolicyFigures
    calibration_accuracy: float


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Full precision, uniform bits and a plan beside each other.

    Attributes:
        data: name of the test images.
        images: how many.
        calibration_images: how many the search looked at.
        full_precision_on_calibration: accuracy of the full-precision model there.
        asked_on_calibration: what the search was asked to reach there.
        expected_elsewhere: what cross-validation expects on images that did not choose thresholds.
        bits: widths of the plan.
        thresholds: of the plan's exits.
        folder: name of the folder with the compressed model.
        rows: one a way to run the model.
        environment: versions and hardware.
    """

    data: str
    images: int
    calibration_images: int
    full_precision_on_calibration: float
    asked_on_calibration: float
    expected_elsewhere: float
    bits: BitSettings
    thresholds: tuple[float, ...]
    folder: str
    rows: tuple[DemoRow, ...]
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee demo` writes them."""
        rows = [
            {"name": row.name, **row.tested.to_json(), "calibration_accuracy": row.calibration_accuracy}
            for row in self.rows
        ]
        names = ("data", "images", "calibration_images", "full_precision_on_calibration", "asked_on_calibration")
        values: dict[str, Any] = {name: getattr(self, name) for name in (*names, "expected_elsewhere")}
        plan = {"bits": self.bits.to_json(), "thresholds": list(self.thresholds), "folder": self.folder}
        return values | {
            "accuracy_is": "simulated",
            "plan": plan,
            "rows": rows,
            "environment": dict(self.environment),
        }


@one_thread()  # the model is a miniature
def demo(out: str | Path = "runs/demo", overrides: list[str] | None = None) -> Demo:
    """The whole method on bundled digits: trained and compressed, beside full precision and uniform 4 bits.

    The method is asked to be as accurate as full precision on calibration images, so that it only has to be cheaper, or
    where 4 bits do not reach that, to come as near as uniform bits do. Test images are looked at once, at the end.

    Args:
        out: folder for everything; its file result.json holds what is returned.
        overrides: of the recipe for digits.
    """
    out = Path(out)
    run_recipe(read_recipe(find_recipe("digits"), overrides), out, device="cpu")
    network = load_with_exits(model_folder(out), tasks[TASK].confidence).eval()
    splits = open_source(require_data(out), network.backbone)
    uniform, trace = fit_uniform(network, splits)
    folder, asked = out / "compressed", reachable(trace)
    compress(out, budget=Budget(min_metric=asked, target_on="calibration"), options=OPTIONS, out=folder, device="cpu")
    plan, model = load(folder).plan, load(folder).model
    measuring = draw_images(splits.calibration, *OPTIONS.draws)[1]
    assert isinstance(uniform.model, EarlyExitModel)
    assert plan.expected is not None
    never, standard = Policy.never(network.num_exits), Policy.same(STANDARD, network.num_exits)
    full, four = BitSettings.uniform(32, 32, network.backbone.depth), uniform.bit_settings
    rows: list[DemoRow] = []
    for tried, bits, policies in (
        (network, full, {"full precision": never, "full precision, exits at 0.8": standard}),
        (uniform.model, four, {"uniform 4 bits": never, "uniform 4 bits, exits at 0.8": standard}),
        (model, plan.bits, {"MAQEE": plan.policy}),
    ):
        rows += _rows(tried, (splits.test, measuring), bits, policies)
    result = Demo(
        data=splits.test.name,
        images=len(splits.test),
        calibration_images=len(measuring),
        full_precision_on_calibration=trace.float_metric,
        asked_on_calibration=asked,
        expected_elsewhere=plan.expected.metric,
        bits=plan.bits,
        thresholds=plan.thresholds,
        folder=folder.name,
        rows=tuple(rows),
        environment=describe_environment(),
    )
    write_json(out / RESULT, result.to_json())
    return result


def fit_uniform(network: EarlyExitModel, splits: Splits) -> tuple[QuantizedModel, Trace]:
    """The method's own quantization at 4 bits everywhere, and its calibration pass."""
    fitting, measuring = draw_images(splits.calibration, *OPTIONS.draws)
    quantized = fit_model(network, fitting, OPTIONS.quantization, OPTIONS, pick_device("cpu"))
    measure = ModelMeasure(network, quantized, load_batches(measuring, network), tasks[TASK], "")
    return quantized, measure.trace(measure.start)


def reachable(trace: Trace) -> float:
    """What is nearest to the full-precision metric on calibration images among all policies of the quantized model."""
    problem = least_cost_problem(trace, trace.float_metric)
    found = choose_thresholds(problem, (STANDARD,) * trace.exits)
    return min(trace.float_metric, policy_figures(trace, found.thresholds).metric)


def _rows(
    model: EarlyExitModel, data: Sequence[ImageSet], bits: BitSettings, policies: Mapping[str, Policy]
) -> list[DemoRow]:
    """Policies by name, on test images and on calibration images."""
    tested, calibrated = (
        measure_policies(model, images, tasks[TASK], bits, list(policies.values()))[1] for images in data
    )
    return [
        DemoRow(name=name, tested=row, calibration_accuracy=other.metrics["accuracy"])
        for name, row, other in zip(policies, tested, calibrated, strict=True)
    ]
