"""Does a quantized model say the same when it is executed on integer codes? Measured on real images."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from maqee.bench.ready_images import draw_some
from maqee.bench.result import BenchResult
from maqee.data import ImageSet, open_source
from maqee.data.transforms import prepare
from maqee.environment import describe_environment
from maqee.exits import backbone_of, load_network
from maqee.models.preprocessing import Preprocessing, override
from maqee.progress import steps
from maqee.quant.compare import TIE, Comparison, compare
from maqee.quant.quantize import quantize
from maqee.quant.settings import QuantSettings
from maqee.runs import model_folder, require_data

LAYER_TOLERANCE = 1e-5  # of a layer's outputs from the same input, relative to the largest


@dataclass(frozen=True, kw_only=True)
class IntegerComparison(BenchResult):
    """A model, simulated and executed on integer codes.

    Attributes:
        model: its name.
        data: name of the test images.
        method: quantization method.
        bits: of weights and activations.
        calibration_images: that grids were fitted on.
        layer_images: of the images, how many were also compared layer by layer.
        seed: random seed of both draws.
        seconds: how long the comparison took.
        comparison: where the two differ.
    """

    model: str
    data: str
    method: str
    bits: str
    calibration_images: int
    layer_images: int
    seed: int
    seconds: float
    comparison: Comparison

    @property
    def layers_agree(self) -> bool:
        """Whether every layer's outputs from the same input are equal, but for rounding."""
        return self.comparison.worst_layer <= LAYER_TOLERANCE

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee bench integers --out` writes them."""
        return {
            **{entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "comparison"},
            **self.comparison.to_json(),
            "compared": "simulated with executed",
            "tie": TIE,
            "layer_tolerance": LAYER_TOLERANCE,
            "layers_agree": self.layers_agree,
        }


def bench_integers(
    model: str | Path,
    data: str,
    *,
    data_root: str | Path | None = None,
    images: int = 1000,
    method: str = "repq",
    settings: QuantSettings | None = None,
    calibration: int = 32,
    resize: int | None = None,
    batch_size: int = 8,
    layer_images: int = 32,
    seed: int = 0,
    show: bool = True,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    resample: str | None = None,
    exif: bool | None = None,
) -> IntegerComparison:
    """Quantize a model and run test images simulated and executed.

    Args:
        model: a preset, folder, weights file or Hub name; or a run of `maqee train`, split as in training. Of a model
            with exits every exit is compared.
        data: name of a data set.
        data_root: where the data lie.
        images: test images, drawn at random.
        method: quantization method.
        settings: bits of every part.
        calibration: calibration images.
        resize: short side before the crop; this, mean, std, resample and exif replace what the model says.
        batch_size: images at a time.
        layer_images: of the images, how many are also compared layer by layer.
        seed: random seed of both draws.
        show: progress with the time left.
        mean: of each channel, or one number for all.
        std: likewise.
        resample: the filter that scales pictures, such as "bilinear".
        exif: whether pictures are turned as their EXIF data says.
    """
    network = load_network(model_folder(Path(model))).eval()
    backbone = backbone_of(network)
    preprocessing = override(backbone.preprocessing, mean=mean, std=std, resample=resample, resize=resize, exif=exif)
    splits = open_source(require_data(Path(model), data, data_root), backbone)
    splits.test.require("labels", "classification")
    fitted = quantize(network, draw_images(splits.calibration, calibration, seed, preprocessing), method, settings)
    chosen = draw_images(splits.test, images, seed, preprocessing)
    start = time.perf_counter()
    with steps("simulated against executed", images, enabled=show) as bar:
        found = compare(fitted, chosen, batch_size, layer_images, bar)
    return IntegerComparison(
        model=Path(model).stem,
        data=splits.test.name,
        method=method,
        bits=f"{fitted.settings.weight_bits}/{fitted.settings.act_bits}",
        calibration_images=calibration,
        layer_images=layer_images,
        seed=seed,
        seconds=round(time.perf_counter() - start, 1),
        comparison=found,
        environment=describe_environment(),
    )


def draw_images(source: ImageSet, count: int, seed: int, preprocessing: Preprocessing) -> Tensor:
    """Images at random, ready for the model."""
    return prepare(source.images.load(draw_some(source, count, seed), preprocessing), preprocessing)
