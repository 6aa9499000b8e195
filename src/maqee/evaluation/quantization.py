"""Accuracy of quantized models: every method, width, scope and draw of calibration images, in one file that grows.

All figures are simulated: weights and activations are rounded to their grids and multiplied as floats.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maqee.data import ImageSet, Splits, eval_batches, open_source
from maqee.data.transforms import prepare
from maqee.device import pick_device, synchronize
from maqee.disk import check_writable_file
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.kept_batches import keep_batches
from maqee.evaluation.method_comparison import MethodComparison, MethodRow, go_on_from
from maqee.evaluation.quantization_cases import IDENTITY, Case, list_cases, settings_of
from maqee.evaluation.record import Batch, measure_batches
from maqee.exits import Network, backbone_of, exit_blocks_of, load_network
from maqee.io import write_json
from maqee.models.digest import weights_digest
from maqee.models.preprocessing import Preprocessing, override
from maqee.progress import steps
from maqee.quant import quantize
from maqee.runs import DataSource, require_data, resolve_model, short_name
from maqee.tasks import tasks
from maqee.values import plain


def compare_methods(
    model: str | Path,
    data: str | None = None,
    *,
    data_root: str | Path | None = None,
    method: Sequence[str] = ("repq",),
    bits: Sequence[str] = ("W4A4",),
    scope: Sequence[str] = ("default",),
    seeds: Sequence[int] = (0,),
    images: int = 32,
    resize: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    resample: str | None = None,
    exif: bool | None = None,
    device: str | None = None,
    batch_size: int = 128,
    out: str | Path | None = None,
    show: bool = True,
) -> MethodComparison:
    """Fit every combination on calibration images and evaluate it on the test images, full precision first.

    Args:
        model: any source of `load_backbone`, a run of `maqee train`, or the folder of a model with exits, of which
            every exit is evaluated.
        data: name of a data set; left out, the one that the model's run was trained on.
        data_root: where the data lie, if not where they were.
        method: quantization methods.
        bits: weight and activation bits, such as "W4A4".
        scope: "default" leaves patch embedding and classifier in float; "authors" quantizes them as the releases do.
        seeds: draws of calibration images: `numpy.random.RandomState(seed).permutation(n)[:images]`.
        images: calibration images of a draw.
        resize: short side before the crop; this and the next four replace what the checkpoint says or is assumed of it.
        mean: of each channel, or one number for all.
        std: likewise.
        resample: the filter that scales pictures, such as "bilinear".
        exif: whether pictures are turned as their EXIF data says.
        device: the GPU if there is one.
        batch_size: test images at a time.
        out: JSON file, written after every combination; combinations that are already in it are not run again.
        show: progress with the time left.
    """
    if batch_size < 1:
        raise MaqeeError(f"batch_size: {batch_size} must be at least 1.")
    cases = list_cases(method, bits, scope, seeds, images)
    file = None if out is None else Path(out)
    if file is not None:
        check_writable_file(file)
    target = pick_device(device)
    model = resolve_model(model)
    network = load_network(model)
    stored = backbone_of(network).preprocessing
    preprocessing = override(stored, mean=mean, std=std, resample=resample, resize=resize, exif=exif)
    splits = open_source(_source(model, data, data_root), backbone_of(network))
    _check_data(network, splits, images)
    result = _begin(model, network, splits, preprocessing)
    if file is not None and file.exists():
        result = go_on_from(file, result)
    done = {row.identity() for row in result.rows}
    left = [case for case in cases if case.identity() not in done]
    if left:
        number, environments = _number_of(result.environments, describe_environment())
        network = network.to(target).eval()
        test = splits.test
        batches = keep_batches(lambda: eval_batches(test, preprocessing, batch_size, target), len(test))
        with steps(f"quantizing {result.model}", len(left), enabled=show) as bar:
            bar.update(0)
            for count, case in enumerate(left, start=1):
                row = _measure(network, case, splits.calibration, preprocessing, batches, target)
                rows = (*result.rows, replace(row, environment=number))
                result = replace(result, rows=rows, environments=environments)
                if file is not None:
                    write_json(file, result.to_json())
                bar.update(count, f"{case.method} {case.bits} {case.scope} {row.accuracy[-1]:.2%}")
    return result


def draw(calibration: ImageSet, images: int, seed: int) -> list[int]:
    """Which calibration images a seed picks."""
    return [int(index) for index in np.random.RandomState(seed).permutation(len(calibration))[:images]]


def _measure(
    network: Network,
    case: Case,
    calibration: ImageSet,
    preprocessing: Preprocessing,
    batches: Iterable[Batch],
    device: torch.device,
) -> MethodRow:
    """One row: fit, evaluate, and how long both took."""
    start = time.perf_counter()
    fitted: Network = network
    if case.seed is not None:
        chosen = calibration.select(draw(calibration, case.images, case.seed))
        pixels = chosen.images.load(range(len(chosen)), preprocessing).to(device)
        synchronize(device)
        begin = time.perf_counter()
        quantized = quantize(network, prepare(pixels, preprocessing), case.method, settings_of(case))
        synchronize(device)
        fit_seconds = time.perf_counter() - begin
        fitted = quantized.model  # type: ignore[assignment]
    else:
        fit_seconds = 0.0
    found = measure_batches(fitted, batches, tasks["classification"]).exits
    return MethodRow(
        **{name: getattr(case, name) for name in IDENTITY},
        accuracy=tuple(round(metric.compute(), 6) for metric in found),
        accuracy_is="full precision" if case.seed is None else "simulated",
        device=device.type,
        fit_seconds=round(fit_seconds, 3),
        seconds=round(time.perf_counter() - start, 3),
    )


def _source(model: str | Path, data: str | None, data_root: str | Path | None) -> DataSource:
    """The data set that was named, or the one that the model's run knows."""
    if data is not None and not Path(model).exists():  # a preset or a name on the Hub, which is no run
        return DataSource(data, None if data_root is None else Path(data_root))
    return require_data(Path(model), data, data_root)


def _check_data(network: Network, splits: Splits, images: int) -> None:
    config = backbone_of(network).config
    if splits.test.kind.name != "labels":
        raise MaqeeError(
            f"{splits.test.name} has {splits.test.kind.name}, and here only accuracy is measured: use maqee baselines, "
            "which knows every task."
        )
    if images > len(splits.calibration):
        raise MaqeeError(
            f"{images} calibration images were asked and {splits.calibration.name} has {len(splits.calibration)}: "
            "ask fewer."
        )
    first = splits.test.images.load([0], backbone_of(network).preprocessing)
    if first.shape[1] != config.channels:
        raise MaqeeError(f"The model wants {config.channels} channels and {splits.test.name} has {first.shape[1]}.")


def _begin(model: str | Path, network: Network, splits: Splits, preprocessing: Preprocessing) -> MethodComparison:
    """A comparison without rows."""
    return MethodComparison(
        model=short_name(model),
        weights=weights_digest(network),
        data=splits.test.name,
        test_images=len(splits.test),
        calibration=splits.calibration.name,
        calibration_images=len(splits.calibration),
        preprocessing=plain(preprocessing.to_json()),
        exit_blocks=exit_blocks_of(network),
    )


def _number_of(
    environments: tuple[Mapping[str, Any], ...], environment: Mapping[str, Any]
) -> tuple[int, tuple[Mapping[str, Any], ...]]:
    """Where an environment stands in the list, and the list; a new one is added."""
    known = environments if environment in environments else (*environments, environment)
    return known.index(environment), known
