"""What a plan is compared with: full precision and uniform bits by several methods, with the same exits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from maqee.apq import BitSettings, SearchOptions, greedy_bits
from maqee.compression.compress_options import CompressOptions
from maqee.compression.job import fit_model, load_batches
from maqee.compression.model_measure import ModelMeasure
from maqee.data import Splits, open_source
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.evaluation.calibration import draw_images
from maqee.evaluation.compressed import measure_quantized
from maqee.evaluation.results import ExitFigures, PolicyFigures
from maqee.exits import EarlyExitModel, load_with_exits
from maqee.models.digest import weights_digest
from maqee.quant import QuantizedModel
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
        policies: one threshold for all exits.
    """

    method: str
    bits: tuple[int, ...] | None
    task: Task
    exits: tuple[ExitFigures, ...]
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
        rows: full precision first.
        environment: versions and hardware.
    """

    model: str
    weights: str
    data: str
    images: int
    seed: int
    rows: tuple[Baseline, ...]
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee baselines --out` writes them."""
        names = ("model", "weights", "data", "images", "seed")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return values | {"rows": [row.to_json() for row in self.rows], "environment": dict(self.environment)}


def baselines(
    model: str | Path,
    methods: Sequence[str] = ("repq", "erq", "mptq"),
    *,
    data: str | None = None,
    data_root: str | Path | None = None,
    options: CompressOptions | None = None,
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
        device: the GPU if there is one.
    """
    run, options = require_folder(Path(model)), options or CompressOptions()
    options = replace(options, task=options.task or task_of(run))
    task, target, folder = tasks[options.task or ""], pick_device(device), model_folder(run)
    network = load_with_exits(folder, task.confidence).to(target).eval()
    splits = open_source(require_data(run, data, data_root), network.backbone)
    splits.test.require(task.targets, task.name)
    full = BitSettings.uniform(32, 32, network.backbone.depth)
    rows = [_measure("float", None, network, full, splits, task)]
    for method in methods:
        quantized = _fit_baseline(network, splits, replace(options, method=method), target)
        assert isinstance(quantized.model, EarlyExitModel)
        bits = quantized.bit_settings
        rows.append(_measure(method, bits.block_weights, quantized.model, bits, splits, task))
    return Baselines(
        model=short_name(folder),
        weights=weights_digest(network),
        data=splits.test.name,
        images=len(splits.test),
        seed=options.seed,
        rows=tuple(rows),
        environment=describe_environment(),
    )


def _measure(
    method: str, bits: tuple[int, ...] | None, model: EarlyExitModel, cost: BitSettings, splits: Splits, task: Task
) -> Baseline:
    exits, rows = measure_quantized(model, cost, splits.test, task)
    return Baseline(method=method, bits=bits, task=task, exits=tuple(exits), policies=tuple(rows))


def _fit_baseline(
    network: EarlyExitModel, splits: Splits, options: CompressOptions, device: torch.device
) -> QuantizedModel:
    """A method at uniform bits; MPTQ at the bits that it chooses."""
    fitting, measuring = draw_images(splits.calibration, *options.draws)
    how = SearchOptions()
    average = options.quantization.weight_bits
    if options.method != "mptq":
        return fit_model(network, fitting, options.quantization, options, device)
    widths = tuple(range(how.bit_min, how.bit_max + 1))
    quantized = fit_model(network, fitting, replace(options.quantization, widths=widths), options, device)
    batches = load_batches(measuring, network)
    measure = ModelMeasure(network, quantized, batches, tasks[options.task or ""], "", options.scored)
    uniform = measure.start
    trace = measure.trace(uniform)
    risks = measure.block_risks(uniform, [widths] * measure.depth, path=False)
    quantized.set_widths(uniform.with_weights(greedy_bits(trace, risks, average * measure.depth, how)))
    return quantized
