"""Does a model take the same exits with the same answers on another engine? Measured on real images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from maqee.bench.integers import LAYER_TOLERANCE, draw_images
from maqee.bench.result import BenchResult
from maqee.data import open_source
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.exits import Decision
from maqee.progress import steps
from maqee.runs import require_data
from maqee.runtime import ReadyModel, load
from maqee.runtime.engines import onnxruntime_starter, openvino_starter

if TYPE_CHECKING:
    import onnx

_STARTERS = {"onnxruntime": onnxruntime_starter, "openvino": openvino_starter}


@dataclass(frozen=True, kw_only=True)
class DecisionComparison(BenchResult):
    """A model simulated by torch and executed by another engine.

    Attributes:
        run: its folder.
        engine: the other one.
        images: real ones, of the test set.
        same: how many took the same exit with the same class.
        same_exit: how many took the same exit.
        largest_difference: of the confidence at the exit taken, among images with the same exit.
        layers: largest difference of each layer's outputs from the same input, relative to the largest output.
        worst_layer: the largest of these.
        layers_agree: whether that is no more than rounding, so that only ties can part the two runs.
    """

    run: str
    engine: str
    images: int
    same: int
    same_exit: int
    largest_difference: float
    layers: Mapping[str, float]
    worst_layer: float
    layers_agree: bool


def bench_decisions(
    run: str | Path,
    *,
    engine: str = "onnxruntime",
    images: int = 1000,
    data: str | None = None,
    data_root: str | Path | None = None,
    batch_size: int = 8,
    layer_images: int = 2,
    seed: int = 0,
    show: bool = True,
) -> DecisionComparison:
    """Run test images simulated and on another engine, under the plan of a compressed model.

    Args:
        run: a folder of `maqee compress`.
        engine: "onnxruntime" or "openvino".
        images: test images, drawn at random.
        data: name of a data set; the run's own when left out.
        data_root: where the data lie.
        batch_size: images at a time.
        layer_images: of the images, how many are also compared layer by layer, from equal inputs.
        seed: random seed of the draw.
        show: progress with the time left.
    """
    if engine not in _STARTERS:
        raise MaqeeError(f"engine: {engine!r} is compared nowhere: choose {' or '.join(_STARTERS)}.")
    start, packed = _STARTERS[engine]()
    from maqee.runtime.export.layer_check import check_layers  # needs what has just been asked for

    simulated = load(run)
    splits = open_source(require_data(Path(run), data, data_root), simulated.model.backbone)
    splits.test.require("labels", "classification")
    chosen = draw_images(splits.test, images, seed, simulated.preprocessing)

    def execute(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return list(start(model)(list(inputs.values())))

    layers = check_layers(simulated.quantized, chosen[:layer_images], execute, packed)
    wanted = _decide(simulated, chosen, batch_size, "simulated", show)
    found = _decide(load(run, engine=engine), chosen, batch_size, engine, show)
    same_exit = wanted.exit == found.exit
    same = same_exit & (wanted.output.argmax(dim=-1) == found.output.argmax(dim=-1))
    apart = (wanted.confidence - found.confidence).abs()[same_exit]
    worst = max(layers.values(), default=0.0)
    return DecisionComparison(
        run=str(run),
        engine=engine,
        images=images,
        same=int(same.sum()),
        same_exit=int(same_exit.sum()),
        largest_difference=float(apart.max()) if len(apart) else 0.0,
        layers=layers,
        worst_layer=worst,
        layers_agree=worst <= LAYER_TOLERANCE,
        environment=describe_environment(),
    )


def _decide(model: ReadyModel, images: torch.Tensor, size: int, name: str, show: bool) -> Decision:
    parts: list[Decision] = []
    with steps(name, len(images), enabled=show) as bar:
        for batch in images.split(size):
            parts.append(model.run(batch))
            bar.update(min(len(parts) * size, len(images)))
    return Decision(*(torch.cat(fields) for fields in zip(*parts, strict=True)))
