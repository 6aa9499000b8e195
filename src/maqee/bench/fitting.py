"""What fitting a quantization method costs: time and peak memory beside one full-precision pass, on this machine.

Each method runs in a process of its own, which also times the full-precision pass before and after it fits, so that
what disturbs one disturbs the other. A further process only loads the model and runs that pass: its memory is the
yardstick. Between two fits at one pair of widths, the method is fitted for all pairs.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor, nn

from maqee.bench.result import BenchResult
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.quantization_cases import parse_widths
from maqee.exits import Network, all_outputs, backbone_of, load_network
from maqee.freed_memory import keep_freed
from maqee.progress import steps
from maqee.quant import QuantizedModel, QuantSettings, methods, quantize

WEIGHT_WIDTHS = (3, 4, 5, 6)
ACT_WIDTHS = (3, 4, 5, 6, 7, 8)
SWITCHES = 20


@dataclass(frozen=True, kw_only=True)
class FittingRow:
    """One method.

    Attributes:
        method: its name.
        fit_seconds: to fit it.
        pass_seconds: a full-precision pass over the same images, in the same process.
        passes: the first as a multiple of the second.
        simulated: a pass of the fitted model as a multiple of the full-precision one.
        peak_bytes: the most memory that the process held while it fitted one pair.
        peak_ratio: the same, of a process that only runs such passes.
        extra_per_model_bytes: memory beyond that process, in sizes of the model.
        all_pairs_seconds: to fit it for all pairs of widths.
        all_pairs_multiple: the same, in fits of one pair.
        all_pairs_peak_bytes: the most memory that the process held while it did.
        all_pairs_per_model_bytes: what the fitted model keeps, in sizes of the float model.
        set_bits_ms: milliseconds to switch a block to another pair.
    """

    method: str
    fit_seconds: float
    pass_seconds: float
    passes: float
    simulated: float
    peak_bytes: int
    peak_ratio: float
    extra_per_model_bytes: float
    all_pairs_seconds: float
    all_pairs_multiple: float
    all_pairs_peak_bytes: int
    all_pairs_per_model_bytes: float
    set_bits_ms: float


@dataclass(frozen=True, kw_only=True)
class FloatPass:
    """The yardstick: seconds and peak memory of a full-precision pass."""

    pass_seconds: float
    peak_bytes: int


@dataclass(frozen=True, kw_only=True)
class FittingComparison(BenchResult):
    """What fitting each method costs.

    Attributes:
        model: its name.
        bits: such as "W4A4".
        all_pairs: all widths of weights and of activations.
        images: calibration images.
        device: always the processor.
        threads: number of processor threads.
        model_bytes: size of the model.
        float_pass: the yardstick.
        rows: one a method.
    """

    model: str
    bits: str
    all_pairs: tuple[tuple[int, ...], tuple[int, ...]]
    images: int
    device: str
    threads: int
    model_bytes: int
    float_pass: FloatPass
    rows: tuple[FittingRow, ...]


def bench_quantize(
    model: str = "vit-base",
    *,
    method: Sequence[str] | None = None,
    bits: str = "W4A4",
    images: int = 32,
    threads: int | None = None,
    repeats: int = 3,
    show: bool = True,
) -> FittingComparison:
    """Seconds and memory of every method at one pair of widths and at all pairs, beside a full-precision pass.

    Images are random numbers, and so are the weights of a preset: neither decides how long a method takes.

    Args:
        model: any source of `load_backbone`, or the folder of an early-exit model.
        method: all of them when left out.
        bits: such as "W4A4".
        images: calibration images.
        threads: number of processor threads; torch's own choice when left out.
        repeats: full-precision passes before, and again after, a method is fitted; their median counts.
        show: progress with the time left.
    """
    names = list(method) if method is not None else methods.names()
    for name in names:
        _ = methods[name]
    parse_widths(bits)
    if images < 1 or repeats < 1 or (threads is not None and threads < 1):
        raise MaqeeError(f"Images ({images}), repeats ({repeats}) and threads ({threads}) must be at least 1.")
    job = {"model": model, "bits": bits, "images": images, "threads": threads, "repeats": repeats}
    found: list[dict[str, Any]] = []
    with steps(f"fitting {model}", len(names) + 1, enabled=show) as bar:
        bar.update(0)
        for chosen in (None, *names):
            found.append(_in_new_process({**job, "method": chosen}))
            bar.update(len(found), chosen or "float")
    yardstick, *fitted = found
    return FittingComparison(
        model=model if not Path(model).exists() else Path(model).name,
        bits=bits,
        all_pairs=(WEIGHT_WIDTHS, ACT_WIDTHS),
        images=images,
        device="cpu",
        threads=yardstick["threads"],
        model_bytes=yardstick["model_bytes"],
        float_pass=FloatPass(pass_seconds=yardstick["pass_seconds"], peak_bytes=yardstick["peak_bytes"]),
        rows=tuple(_row(name, measured, yardstick) for name, measured in zip(names, fitted, strict=True)),
        environment=describe_environment(),
    )


def _row(name: str, measured: dict[str, Any], yardstick: dict[str, Any]) -> FittingRow:
    extra = measured["peak_bytes"] - yardstick["peak_bytes"]
    return FittingRow(
        method=name,
        fit_seconds=measured["fit_seconds"],
        pass_seconds=measured["pass_seconds"],
        passes=round(measured["fit_seconds"] / measured["pass_seconds"], 3),
        simulated=round(measured["simulated_seconds"] / measured["pass_seconds"], 3),
        peak_bytes=measured["peak_bytes"],
        peak_ratio=round(measured["peak_bytes"] / yardstick["peak_bytes"], 4),
        extra_per_model_bytes=round(extra / yardstick["model_bytes"], 4),
        all_pairs_seconds=measured["all_pairs_seconds"],
        all_pairs_multiple=round(measured["all_pairs_seconds"] / measured["fit_seconds"], 3),
        all_pairs_peak_bytes=measured["all_pairs_peak_bytes"],
        all_pairs_per_model_bytes=round(measured["kept_bytes"] / yardstick["model_bytes"], 4),
        set_bits_ms=measured["set_bits_ms"],
    )


def _in_new_process(job: dict[str, Any]) -> dict[str, Any]:
    """Run `measure` where no other method has left its memory."""
    environment = dict(os.environ)
    if job["threads"] is not None:
        environment["OMP_NUM_THREADS"] = str(job["threads"])
    command = [sys.executable, "-m", "maqee.bench.fitting", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        what = job["method"] or "the full-precision pass"
        raise MaqeeError(f"{what} on {job['model']} could not be measured: {reason.removeprefix('MaqeeError: ')}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """In the new process: time full-precision passes, fit the method if there is one, time them again."""
    keep_freed()  # as commands do
    if job["threads"] is not None:
        torch.set_num_threads(job["threads"])
    network = load_network(job["model"]).eval()
    config = backbone_of(network).config
    shape = (job["images"], config.channels, *config.image_size)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    _run(network, images)  # warm-up
    passes = [_time_pass(network, images) for _ in range(job["repeats"])]
    fitted: dict[str, Any] = {"fit_seconds": None, "peak_bytes": peak_bytes()}
    if job["method"] is not None:
        fitted = _measure_fits(network, images, job["method"], job["bits"], job["repeats"])
        passes += [_time_pass(network, images) for _ in range(job["repeats"])]
    return {
        "pass_seconds": median(passes),
        "model_bytes": kept_bytes(network),
        "threads": torch.get_num_threads(),
        **fitted,
    }


def _measure_fits(network: Network, images: Tensor, method: str, bits: str, repeats: int) -> dict[str, Any]:
    """One pair, all pairs, and one pair again, which is then run."""
    weights, activations = parse_widths(bits)
    one = QuantSettings(weight_bits=weights, act_bits=activations)
    many = replace(one, widths=WEIGHT_WIDTHS, act_widths=ACT_WIDTHS)
    before, _ = _time_fit(network, images, method, one)
    peak = peak_bytes()
    all_pairs, quantized = _time_fit(network, images, method, many)
    all_peak = peak_bytes()
    kept, set_bits_ms = kept_bytes(quantized.model), _time_set_bits(quantized)
    del quantized
    after, quantized = _time_fit(network, images, method, one)
    fitted = cast(Network, quantized.model)
    return {
        "fit_seconds": (before + after) / 2,
        "simulated_seconds": median(_time_pass(fitted, images) for _ in range(repeats)),
        "peak_bytes": peak,
        "all_pairs_seconds": all_pairs,
        "all_pairs_peak_bytes": all_peak,
        "kept_bytes": kept,
        "set_bits_ms": set_bits_ms,
    }


def _time_fit(network: Network, images: Tensor, method: str, settings: QuantSettings) -> tuple[float, QuantizedModel]:
    start = time.perf_counter()
    quantized = quantize(network, images, method, settings)
    return time.perf_counter() - start, quantized


def _time_set_bits(quantized: QuantizedModel) -> float:
    """Milliseconds to give a block other widths for weights and activations."""
    seconds = []
    for number in range(SWITCHES):
        weights, activations = WEIGHT_WIDTHS[number % len(WEIGHT_WIDTHS)], ACT_WIDTHS[number % len(ACT_WIDTHS)]
        start = time.perf_counter()
        quantized.set_bits(1, weights, activations)
        seconds.append(time.perf_counter() - start)
    return 1000 * median(seconds)


def kept_bytes(model: nn.Module) -> int:
    """Size of everything a model keeps; what is shared counts once."""
    kept = {(tensor.data_ptr(), tensor.numel()): tensor for tensor in model.state_dict().values()}
    return sum(tensor.numel() * tensor.element_size() for tensor in kept.values())


@torch.no_grad()
def _run(network: Network, images: Tensor) -> None:
    all_outputs(network, images)


def _time_pass(network: Network, images: Tensor) -> float:
    start = time.perf_counter()
    _run(network, images)
    return time.perf_counter() - start


def peak_bytes() -> int:
    """The most memory this process has held.

    Linux counts the memory of whoever started a process into its ru_maxrss, so the kernel's own mark is asked first.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


if __name__ == "__main__":
    try:
        print(json.dumps(measure(json.loads(sys.argv[1]))))
    except MaqeeError as error:
        sys.exit(f"MaqeeError: {error}")
