"""What `maqee bench stream` gives back."""

from __future__ import annotations

from dataclasses import dataclass

from maqee.bench.result import BenchResult


@dataclass(frozen=True, kw_only=True)
class StreamWay:
    """One way to answer all images.

    Attributes:
        name: "full depth", "run" (batch by batch) or "stream"; or the reference, where that is another network.
        images_per_second: over all images.
        times_reference: how many times as fast as the reference.
        share_of_ideal: of the images a second that the policy could give.
        p50_ms: median time from when an image is taken from its source to when its batch has its answers.
        p95_ms: within which 95 of 100 images are answered.
        p99_ms: within which 99 of 100 are.
    """

    name: str
    images_per_second: float
    times_reference: float
    share_of_ideal: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


@dataclass(frozen=True, kw_only=True)
class StreamRow:
    """One policy: what it costs, and what was reached.

    Attributes:
        mean_exit: mean block after which images leave.
        exit_mass: share of the images that leaves at each exit and at full depth.
        macs_share: multiply-accumulates that the policy needs, heads included, as a share of full depth's.
        bops: expected bit operations of an image; float counts as 32 bits, in whatever precision it is computed.
        bops_share: of those of the network in full precision (32 bits) at full depth, without early heads.
        ideal_images_per_second: those of full depth, divided by `macs_share`.
        ways: what was reached.
    """

    mean_exit: float
    exit_mass: tuple[float, ...]
    macs_share: float
    bops: float
    bops_share: float
    ideal_images_per_second: float
    ways: tuple[StreamWay, ...]


@dataclass(frozen=True, kw_only=True)
class StreamComparison(BenchResult):
    """Streams, executed, against batches, full depth and a reference.

    Attributes:
        model: its name.
        weights: "random", or "stored" where they came with the model.
        exit_blocks: where exits are, full depth last.
        exit_kinds: heads of the exits.
        engine: what ran it.
        quantization: "none", "simulated" (rounded, multiplied as floats) or "integer codes".
        method: by which it was quantized; "the run's" for a compressed run, None for a float model.
        bits: of weights and activations; "the plan's" likewise.
        patch: bits of the patch embedding, weights and activations; 32 is float.
        common_steps: whether groups of weights were asked to have a common step; None where nobody asked.
        simulated: on the engine triton, parts of the network without kernels, and why.
        images: how many went through, in each way.
        batch_size: of them at a time.
        precision: fp32 or bf16; of a compressed model, that of what is not quantized.
        compiled: whether pieces, and full depth as a whole, were compiled.
        cuda_graphs: whether graphs were replayed between exits.
        device: where it ran, its name on a GPU.
        reference: the way that all are compared with: a float network at full depth.
        repeats: rounds, in which the ways took turns.
        executed: True; exits are really taken.
        rows: one a policy.
    """

    model: str
    weights: str
    exit_blocks: tuple[int, ...]
    exit_kinds: tuple[str, ...]
    engine: str
    quantization: str
    method: str | None
    bits: str | None
    patch: tuple[int, int]
    common_steps: bool | None
    simulated: tuple[str, ...]
    images: int
    batch_size: int
    precision: str
    compiled: bool
    cuda_graphs: bool
    device: str
    reference: str
    repeats: int
    executed: bool = True
    rows: tuple[StreamRow, ...]
