"""What `maqee bench kernels` finds out."""

from __future__ import annotations

from dataclasses import dataclass

from maqee.bench.result import BenchResult


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """One kernel of the first block.

    Attributes:
        name: what it does in the block.
        microseconds: median.
        operations: multiplications and additions of its products; None where it has none.
        tops: 10^12 of them in a second.
    """

    name: str
    microseconds: float
    operations: int | None
    tops: float | None

    @classmethod
    def of(cls, name: str, operations: int | None, seconds: float) -> KernelRow:
        """A kernel that took so long."""
        tops = None if operations is None else operations / seconds / 1e12
        return cls(name=name, microseconds=seconds * 1e6, operations=operations, tops=tops)


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """A part of the network, on kernels and compiled.

    Attributes:
        part: "all blocks", "whole network", or an exit's head.
        kernels_ms: median on kernels.
        compiled_ms: median of the float network in bfloat16 by torch.compile.
        ratio: how many times as fast the kernels are.
    """

    part: str
    kernels_ms: float
    compiled_ms: float
    ratio: float

    @classmethod
    def of(cls, part: str, kernels: float, compiled: float) -> PartRow:
        """A part that took so many seconds."""
        return cls(part=part, kernels_ms=kernels * 1e3, compiled_ms=compiled * 1e3, ratio=compiled / kernels)


@dataclass(frozen=True, kw_only=True)
class BatchRows:
    """All times for one number of images.

    Attributes:
        batch: images that go in together.
        kernels: those of the first block, in its order; a branch that has none is left out.
        parts: against torch.compile.
    """

    batch: int
    kernels: tuple[KernelRow, ...]
    parts: tuple[PartRow, ...]


@dataclass(frozen=True, kw_only=True)
class LogitAgreement:
    """Full depth on kernels beside the simulation, on the same images.

    Attributes:
        images: how many.
        largest_difference: of two logits.
        largest_logit: of the simulation, without its sign.
        same_class: share of the images with the same class.
    """

    images: int
    largest_difference: float
    largest_logit: float
    same_class: float


@dataclass(frozen=True, kw_only=True)
class KernelComparison(BenchResult):
    """Kernels beside torch.compile in bfloat16.

    Attributes:
        model: its name.
        weights: "random", or "stored" where they came with the model.
        exits: heads that were given to it; "none" where it has those that it came with.
        method: by which it was quantized; "the run's" for a compressed run.
        bits: of weights and activations; "the plan's" likewise.
        common_steps: whether groups of weights were asked to have a common step; None for a compressed run.
        half_tokens: whether tokens travelled in float16.
        seed: of weights and images.
        repeats: rounds, in which everything took turns.
        device: name of the GPU.
        attention: the kernel of torch that the compiled network's attention runs on.
        executed: True: all products that have kernels are made of integer codes.
        simulated: parts of the network without kernels, and why.
        agreement: with the simulation.
        rows: one a batch size.
    """

    model: str
    weights: str
    exits: str
    method: str
    bits: str
    common_steps: bool | None
    half_tokens: bool = False
    seed: int
    repeats: int
    device: str
    attention: str
    executed: bool = True
    simulated: tuple[str, ...]
    agreement: LogitAgreement
    rows: tuple[BatchRows, ...]
