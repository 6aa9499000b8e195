"""What `maqee bench plans` gives back."""

from __future__ import annotations

from dataclasses import dataclass

from maqee.bench.result import BenchResult


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Images a second over the repetitions.

    Attributes:
        median: of all repetitions.
        low: of the slowest.
        high: of the fastest.
    """

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One model on one engine under one policy.

    Attributes:
        name: run, engine, and where images stop if that was asked for.
        engine: what ran it.
        kind: "float", "early exit", "low bits" or "low bits and early exit".
        execution: "executed": images really left, and all figures are of that.
        quantization: "none", "simulated" (rounded, multiplied as floats) or "integer codes".
        precision: of what is not quantized, fp32 or bf16.
        thresholds: of every exit; empty at full depth, where early heads are left out.
        accuracy: share of the images that were named rightly.
        mean_exit: mean block after which images left.
        exit_blocks: where exits are, full depth last.
        exit_mass: share of the images that left at each.
        images_per_second: of a stream.
        ratio: how many times as fast as the first row, the median over pairs of neighbouring runs.
        file_bytes: size of the weights on disk.
    """

    name: str
    engine: str
    kind: str
    execution: str = "executed"
    quantization: str
    precision: str
    thresholds: tuple[float, ...]
    accuracy: float
    mean_exit: float
    exit_blocks: tuple[int, ...]
    exit_mass: tuple[float, ...]
    images_per_second: Rate
    ratio: float
    file_bytes: int


@dataclass(frozen=True, kw_only=True)
class PlanComparison(BenchResult):
    """Models side by side.

    Attributes:
        data: name of the test images.
        images: how many went through every model, decoded and prepared before the clock ran.
        seed: of the draw.
        batch: images that go through a model together.
        repeats: timed repetitions, in which the rows took turns.
        precision: that was asked for; a row says what it had.
        compiled: whether models on the engine torch were compiled.
        cuda_graphs: whether roads between exits were replayed as graphs, on torch and triton.
        device: where all ran.
        rows: in the order asked for.
    """

    data: str
    images: int
    seed: int
    batch: int
    repeats: int
    precision: str
    compiled: bool
    cuda_graphs: bool
    device: str
    rows: tuple[PlanRow, ...]
