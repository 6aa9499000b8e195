"""What a plan is compared with: full precision and uniform bits by several methods, with the same exits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maqee.apq import Trace
from maqee.compression.baseline_model import fit_baseline
from maqee.compression.compress_options import CompressOptions
from maqee.data import ImageSet, open_source
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.evaluation.calibration import draw_images
from maqee.evaluation.compressed import measure_quantized
from maqee.evaluation.float_trace import float_trace
from maqee.evaluation.protocols import STANDARD, both_protocols
from maqee.evaluation.results import ExitFigures, PolicyFigures
from maqee.exits import EarlyExitModel, load_with_exits
from maqee.models.digest import weights_digest
from maqee.quant import methods as known_methods
from maqee.runs import model_folder, require_data, require_folder, short_name, task_of
from maqee.tasks import Task, tasks


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """One method on the test images.

    Attributes:
        method: its name; "float" is the model as it came.
        bits: weight bits of every block; None for the model as it came.
        task: what is predicted.
        exits: every exit, full depth last.
        standard: the usual threshold for all exits: the paper's standard configuration.
        controlled: all moved by one offset, to the cheapest that reaches the target on calibration images; None where
            no offset does.
        policies: one threshold for all exits.
    """

    method: str
    bits: tuple[int, ...] | None
    task: Task
    exits: tuple[ExitFigures, ...]
    standard: PolicyFigures
    controlled: PolicyFigures | None
    policies: tuple[PolicyFigures, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "method": self.method,
            "bits": None if self.bits is None else list(self.bits),
            "task": self.task.name,
            "metric": self.task.metric_name,
            "score": self.task.score_name,
            "accuracy_is": "full precision, policies simulated" if self.bits is None else "simulated",
            "exits": [row.to_json() for row in self.exits],
            "standard": self.standard.to_json(),
            "controlled": None if self.controlled is None else self.controlled.to_json(),
            "shared_thresholds": [row.to_json() for row in self.policies],
        }


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Several methods beside each other.

    Attributes:
        model: short name of the model's folder.
        weights: hash of its weights.
        data: name of the images.
        images: how many.
        seed: random seed of the draw of calibration images.
        controlled_target: what controlled performance must reach on calibration images.
        rows: full precision first.
        environment: versions and hardware.
    """

    model: str
    weights: str
    data: str
    images: int
    seed: int
    controlled_target: float
    rows: tuple[Baseline, ...]
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee baselines --out` writes them."""
        names = ("model", "weights", "data", "images", "seed", "controlled_target")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return values | {"rows": [row.to_json() for row in self.rows], "environment": dict(self.environment)}


def baselines(
    model: str | Path,
    methods: Sequence[str] = ("repq", "erq", "mptq"),
    *,
    data: str | None = None,
    data_root: str | Path | None = None,
    options: CompressOptions | None = None,
    controlled: float | None = None,
    device: str | None = None,
) -> Baselines:
    """Full precision and uniform bits by several methods, with the same exits and shared thresholds (simulated).

    MPTQ gets the bits of its own greedy choice, with the same average.

    Args:
        model: folder of a run of `maqee train`, of one of its stages, or of any model with exits.
        methods: quantization methods.
        data: name of the data set, if the folder does not say.
        data_root: where the data lie, if not where they were.
        options: bits, calibration images and random seed; a search is not made.
        controlled: the accuracy that controlled performance must reach on calibration images; left out, the best of a
            quantized method at full depth.
        device: the GPU if there is one.
    """
    run, options = require_folder(Path(model)), options or CompressOptions()
    options = replace(options, task=options.task or task_of(run))
    task, target, folder = tasks[options.task or ""], pick_device(device), model_folder(run)
    network = load_with_exits(folder, task.confidence).to(target).eval()
    splits = open_source(require_data(run, data, data_root), network.backbone)
    for part in (splits.test, splits.calibration):
        part.require(task.targets, task.name)
    _ = [known_methods[name] for name in methods]  # mistakes must not cost an hour
    _, measuring = draw_images(splits.calibration, *options.draws)
    fitted: list[tuple[str, EarlyExitModel, Trace]] = [("float", network, float_trace(network, measuring, task))]
    for method in methods:
        measure, trace = fit_baseline(network, splits.calibration, replace(options, method=method), target)
        measure.quantized.settle()  # several models lie in memory together
        fitted.append((method, measure.model, trace))
    reached = [trace.full_metric for _, _, trace in fitted[1:] or fitted]
    asked = max(reached) if controlled is None else controlled
    return Baselines(
        model=short_name(folder),
        weights=weights_digest(network),
        data=splits.test.name,
        images=len(splits.test),
        seed=options.seed,
        controlled_target=round(asked, 6),
        rows=tuple(_measure(*entry, asked, splits.test, task) for entry in fitted),
        environment=describe_environment(),
    )


def _measure(method: str, model: EarlyExitModel, trace: Trace, target: float, test: ImageSet, task: Task) -> Baseline:
    """One pass over the test images: every exit, both protocols, and shared thresholds."""
    both = both_protocols(trace, (STANDARD,) * trace.exits, target)
    exits, rows = measure_quantized(model, trace.bits, test, task, both.policies)
    standard, controlled = both.sort_out(rows)
    return Baseline(
        method=method,
        bits=None if method == "float" else trace.bits.block_weights,
        task=task,
        exits=tuple(exits),
        standard=standard,
        controlled=controlled,
        policies=tuple(rows[len(both.policies) :]),
    )
