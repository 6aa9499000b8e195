"""How fast kernels run a quantized model on a GPU, beside the float one by torch.compile in bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from maqee.bench.graph_times import GraphTimer, Job, Timer
from maqee.bench.kernel_models import Pair, open_pair
from maqee.bench.kernel_results import BatchRows, KernelComparison, KernelRow, LogitAgreement, PartRow
from maqee.bench.noise_models import asked_settings
from maqee.bench.timing import Run
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.segment import Segment
from maqee.models import Backbone
from maqee.models.compiling import many_versions
from maqee.models.layers import ATTENTION_BACKENDS, Attend
from maqee.progress import phase
from maqee.runs import short_name
from maqee.runtime.engines import require_package

COPIES = 5  # of a kernel in one graph
AT_ONCE = 32  # images that are simulated together

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class Part(NamedTuple):
    """The same part of both networks."""

    name: str
    kernels: Run
    compiled: Run


def bench_kernels(
    model: str | Path = "vit-base",
    *,
    exits: str = "none",
    method: str = "erq",
    bits: str = "W4A4",
    patch: str | None = None,
    classifier: str | None = None,
    common_steps: bool = False,
    half_tokens: bool = False,
    batch: Sequence[int] = (256,),
    seed: int = 0,
    repeats: int = 20,
    device: str | None = None,
    show: bool = True,
) -> KernelComparison:
    """Times of the kernels of a block one by one, of all blocks and of the whole network, beside torch.compile.

    Everything is recorded in CUDA graphs and takes turns. The compiled network is the same one in float, in bfloat16.
    Images are noise: neither side's time depends on them. Logits are compared with those of the simulation.

    Args:
        model: a preset, which gets random weights; or any model, or a folder of `maqee train` or `maqee compress`.
        exits: "none", or heads to add to a model that has none; each is timed, too.
        method: how it is quantized, on a few images of noise; a compressed run has its own, and its own bits.
        bits: of weights and activations in blocks and heads.
        patch: bits of the patch embedding, such as "8/8"; float when left out.
        classifier: of the classifier, likewise.
        common_steps: let the two groups of weights that "erq" makes have a common step.
        half_tokens: let tokens travel between kernels in float16.
        batch: numbers of images that go in together.
        seed: of random weights and of the images.
        repeats: timed repetitions.
        device: the GPU if there is one; there must be one.
        show: say what is being done.
    """
    if not batch or min(batch) < 1:
        raise MaqeeError(f"batch_size: {list(batch)} must be one number of images or more, each at least 1.")
    settings = asked_settings(bits, patch, classifier, common_steps)
    target = pick_device(device)
    if target.type != "cuda":
        raise MaqeeError(f"Kernels are timed on a GPU, which {target} is not: run this where CUDA finds one.")
    require_package("triton", "triton", "triton")
    from maqee.runtime.kernels.swapping import check_device

    check_device(target)
    with torch.cuda.device(target), many_versions():
        with phase(f"opening {model}", show):
            pair = open_pair(str(model), exits, method, settings, seed, target)
        images = noise(pair.quantized.backbone, max(batch), seed, target)
        attention = attention_backend(pair.plain, images[:1])
        with phase("starting", show):
            agreement, simulated = start_kernels(pair.quantized, images, half_tokens)
        compile = partial(torch.compile, dynamic=False)  # every number of images gets kernels of its own
        with phase("timing", show):
            rows = measure(pair, images, batch, GraphTimer(repeats), compile)
    return KernelComparison(
        model=short_name(model),
        weights=pair.weights,
        exits=exits,
        method="the run's" if pair.planned else method,
        bits="the plan's" if pair.planned else bits,
        common_steps=None if pair.planned else common_steps,
        half_tokens=half_tokens,
        seed=seed,
        repeats=repeats,
        device=torch.cuda.get_device_name(target),
        attention=attention,
        simulated=simulated,
        agreement=agreement,
        rows=rows,
        environment=describe_environment(),
    )


def noise(backbone: Backbone, count: int, seed: int, device: torch.device) -> Tensor:
    """Images (count, channels, height, width), the same on every device."""
    config, generator = backbone.config, torch.Generator().manual_seed(seed)
    return torch.randn(count, config.channels, *config.image_size, generator=generator).to(device)


@torch.inference_mode()
def start_kernels(
    network: EarlyExitModel, images: Tensor, half_tokens: bool = False
) -> tuple[LogitAgreement, tuple[str, ...]]:
    """Let a simulated network use kernels: how well the two agree, and which parts are simulated on."""
    from maqee.runtime.kernels.swapping import describe, use_kernels

    simulation = torch.cat([network(part) for part in images.split(AT_ONCE)])
    use_kernels(network, half_tokens)
    executed = full_depth(_roads(network), images)
    agreement = LogitAgreement(
        images=len(images),
        largest_difference=float((executed - simulation).abs().max()),
        largest_logit=float(simulation.abs().max()),
        same_class=float((executed.argmax(dim=-1) == simulation.argmax(dim=-1)).float().mean()),
    )
    lines = describe(network)
    return agreement, tuple(f"{line.name}: {line.how}" for line in lines if line.how.startswith("simulated"))


@torch.inference_mode()
def measure(pair: Pair, images: Tensor, batch: Sequence[int], timer: Timer, compile: Compile) -> tuple[BatchRows, ...]:
    """Times of everything at every number of images.

    Args:
        pair: the networks, the quantized one on kernels.
        images: as many as the largest batch.
        batch: numbers of images.
        timer: times all jobs at once, so that all of them can take turns.
        compile: what is done to the float network.
    """
    from maqee.bench.kernel_steps import block_steps

    roads = _roads(pair.quantized)
    backbone = roads[0].backbone
    compiled = _Compiled(pair.plain, compile)
    steps, parts = [], []
    for size in batch:
        tokens = backbone.embedding(images[:size])
        steps.append(block_steps(backbone.blocks[0], tokens))
        parts.append(_parts(roads, compiled, images[:size], tokens))
    jobs: list[Job] = []
    for some, others in zip(steps, parts, strict=True):
        jobs += [Job(step.run, COPIES) for step in some]
        jobs += [Job(run) for part in others for run in (part.kernels, part.compiled)]
    seconds = iter(timer(jobs))
    return tuple(
        BatchRows(
            batch=size,
            kernels=tuple(KernelRow.of(step.name, step.operations, next(seconds)) for step in some),
            parts=tuple(PartRow.of(part.name, next(seconds), next(seconds)) for part in others),
        )
        for size, some, others in zip(batch, steps, parts, strict=True)
    )


def full_depth(roads: Sequence[Segment], images: Tensor) -> Tensor:
    """The prediction after the last block, without the heads before it."""
    x, kept = images, dict[int, Tensor]()
    for road in roads:
        x, new = road.walk(x)
        kept |= new
    return roads[-1].predict(x, kept)


def all_blocks(backbone: Backbone, x: Tensor) -> Tensor:
    """Tokens in front of the first block to those after the last."""
    for number in range(1, backbone.depth + 1):
        x = backbone.run_block(number, x)
    return x


def attention_backend(network: nn.Module, images: Tensor) -> str:
    """Which of its kernels torch takes for a network's first attention; those that maqee leaves out do not count."""
    found: list[str] = []

    def look(_: nn.Module, operands: tuple[Any, ...]) -> None:
        q, k, v, *bias = operands
        with sdpa_kernel(ATTENTION_BACKENDS):
            choice = torch._fused_sdp_choice(q, k, v, attn_mask=bias[0] if bias else None)
        found.append(SDPBackend(choice).name.lower().removesuffix("_attention"))

    attend = next(module for module in network.modules() if isinstance(module, Attend))
    handle = attend.register_forward_pre_hook(look)
    with torch.inference_mode():
        network(images.to(next(network.parameters()).dtype))
    handle.remove()
    return found[0]


class _Compiled:
    """The float network's parts, each compiled on its own."""

    def __init__(self, network: EarlyExitModel, compile: Compile) -> None:
        self.dtype = next(network.parameters()).dtype
        self.blocks = compile(partial(all_blocks, network.backbone))
        self.whole = compile(network.forward)
        self.heads = [compile(network.head(index).forward) for index in range(network.num_exits)]


def _roads(network: EarlyExitModel) -> list[Segment]:
    return [road for road in network.segments if isinstance(road, Segment)]


def _parts(roads: Sequence[Segment], compiled: _Compiled, images: Tensor, tokens: Tensor) -> list[Part]:
    """Blocks, heads and all, on memory that belongs to them."""
    backbone, dtype = roads[0].backbone, compiled.dtype
    parts = [
        Part("all blocks", partial(all_blocks, backbone, tokens), partial(compiled.blocks, tokens.to(dtype))),
        Part("whole network", partial(full_depth, roads, images), partial(compiled.whole, images.to(dtype))),
    ]
    if compiled.heads:
        seen = dict(backbone.walk(tokens))  # tokens after every block
        for road, plain in zip(roads, compiled.heads, strict=False):
            assert road.head is not None
            read = [seen[block].to(dtype) for block in (*road.head.reads, road.last)]
            words = f"head after block {road.last}"
            parts.append(Part(words, partial(road.predict, seen[road.last], seen), partial(plain, *read)))
    return parts
