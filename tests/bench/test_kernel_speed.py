"""The benchmark of kernels: what its rows hold, from given times; kernels run in Triton's interpreter without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from maqee.bench.graph_times import REPLAYS, GraphTimer, Job
from maqee.bench.kernel_models import Pair, open_pair
from maqee.bench.kernel_results import BatchRows, KernelComparison, KernelRow, LogitAgreement, PartRow
from maqee.bench.kernel_speed import attention_backend, bench_kernels, full_depth, measure, noise, start_kernels
from maqee.bench.noise_models import SPREAD
from maqee.errors import MaqeeError
from maqee.exits.segment import Segment
from maqee.models import Backbone
from maqee.quant import Bits, QuantSettings
from maqee.report.kernel_table import kernel_table
from tests.helpers import invoke, max_difference
from tests.runtime.makers import small_model, write_compressed_run, write_trained_run

ATTENTION = ["norm 1", "qkv", "attention", "projection"]
MLP = ["norm 2", "MLP, first layer", "MLP, second layer"]


@pytest.fixture(scope="module")
def device() -> torch.device:
    """Where kernels run."""
    pytest.importorskip("triton", reason="Triton is not installed on this machine")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pair_of(preset: str, device: torch.device, method: str = "rtn", exits: str = "none") -> Pair:
    return open_pair(preset, exits, method, QuantSettings(patch=Bits(8, 8)), 0, device)


def not_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def first_block(pair: Pair, images: Tensor) -> tuple[torch.nn.Module, Tensor]:
    """The first block of a network on kernels and the tokens in front of it."""
    road = pair.quantized.segments[0]
    assert isinstance(road, Segment)
    return road.backbone.blocks[0], road.backbone.embedding(images)


class GivenTimes:
    """A timer that runs every job once and says that the first takes 1 ms, the second 2 ms and so on."""

    def __init__(self) -> None:
        self.jobs: Sequence[Job] = ()
        self.outputs: list[Tensor] = []

    def __call__(self, jobs: Sequence[Job]) -> list[float]:
        self.jobs, self.outputs = jobs, [job.run() for job in jobs]
        return [(number + 1) / 1000 for number in range(len(jobs))]


def test_every_row_at_every_batch(device: torch.device) -> None:
    pair = pair_of("test-vit", device, method="erq", exits="lgvit")
    images = noise(pair.quantized.backbone, 2, 0, device)
    start_kernels(pair.quantized, images)
    timer = GivenTimes()
    one, two = measure(pair, images, (1, 2), timer, not_compiled)
    heads = [f"head after block {block}" for block in pair.quantized.positions]
    for rows in (one, two):
        assert [row.name for row in rows.kernels] == ATTENTION + MLP
        assert [row.part for row in rows.parts] == ["all blocks", "whole network", *heads]
    assert (one.batch, two.batch) == (1, 2)
    # 17 tokens of width 32, an MLP of width 64, two operations for a product and its sum; attention has two products
    macs = [None, 32 * 96, 2 * 17 * 32, 32 * 32, None, 32 * 64, 64 * 32]  # of a token
    assert [row.operations for row in two.kernels] == [None if n is None else 2 * 2 * 17 * n for n in macs]
    assert [row.microseconds for row in one.kernels] == pytest.approx([1000 * number for number in range(1, 8)])
    assert one.kernels[1].tops == pytest.approx(2 * 17 * 32 * 96 / 0.002 / 1e12)
    assert (one.parts[0].kernels_ms, one.parts[0].compiled_ms) == pytest.approx((8, 9))
    assert one.parts[1].ratio == pytest.approx(11 / 10)
    assert two.kernels[0].microseconds == pytest.approx(1000 * (7 + 2 * (2 + len(heads)) + 1))
    assert {job.copies for job in timer.jobs[:7]} == {5}
    # both sides of a part do the same thing: the float network in bfloat16, the other one on codes
    kernels, compiled = timer.outputs[9:11]
    assert kernels.shape == compiled.shape == (1, 10)
    assert compiled.dtype == torch.bfloat16
    assert torch.equal(kernels, full_depth(roads(pair), images[:1]))


def test_tokens_in_half(device: torch.device) -> None:
    pair = pair_of("test-vit", device, exits="mlp")
    images = noise(pair.quantized.backbone, 1, 0, device)
    start_kernels(pair.quantized, images, half_tokens=True)
    timer = GivenTimes()
    (rows,) = measure(pair, images, (1,), timer, not_compiled)
    assert [row.name for row in rows.kernels] == ATTENTION + MLP
    dtypes = [output.dtype for output in timer.outputs if isinstance(output, Tensor)]
    half, full, plain = torch.float16, torch.float32, torch.bfloat16
    heads = pair.quantized.num_exits
    assert dtypes == [half, half, half, plain, full, plain, *([full, plain] * heads)]  # projection, MLP, blocks, all


def roads(pair: Pair) -> list[Segment]:
    return [road for road in pair.quantized.segments if isinstance(road, Segment)]


@torch.inference_mode()
def test_steps_make_a_block(device: torch.device) -> None:
    from maqee.bench.kernel_steps import block_steps

    pair = pair_of("test-vit", device)
    images = noise(pair.quantized.backbone, 2, 0, device)
    start_kernels(pair.quantized, images)
    block, x = first_block(pair, images)
    assert isinstance(block, torch.nn.Sequential)
    steps = block_steps(block, x)
    assert torch.equal(steps[3].run().view_as(x), block[0](x))
    assert torch.equal(steps[-1].run().view_as(x), block(x))


@torch.inference_mode()
def test_branches_without_kernels_have_no_steps(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from maqee.bench import kernel_steps

    pair = pair_of("test-dinov2", device, method="mptq")  # a twin grid behind GELU, for which there is no kernel
    images = noise(pair.quantized.backbone, 1, 0, device)
    _, simulated = start_kernels(pair.quantized, images)
    assert "backbone.blocks.0.mlp.fc2: simulated: it has an input with a twin grid" in simulated
    block, x = first_block(pair, images)
    assert [step.name for step in kernel_steps.block_steps(block, x)] == ATTENTION
    monkeypatch.setattr(kernel_steps, "MOST_TOKENS", 3)
    assert kernel_steps.block_steps(block, x) == []


@torch.inference_mode()
def test_windows_are_steps_too(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from maqee.bench import kernel_steps

    monkeypatch.setattr(kernel_steps, "MOST_TOKENS", 3)  # an image has many windows, and each few tokens
    swin = pair_of("test-swin", device)
    images = noise(swin.quantized.backbone, 1, 0, device)
    start_kernels(swin.quantized, images)
    steps = kernel_steps.block_steps(*first_block(swin, images))
    assert [step.name for step in steps][: len(ATTENTION)] == ATTENTION
    attention = steps[ATTENTION.index("attention")]
    assert attention.operations == 2 * 2 * 256 * 16 * 16  # two products of 256 tokens with 16 others, 16 wide


@torch.inference_mode()
def test_agreement_with_the_simulation(device: torch.device) -> None:
    pair = pair_of("test-vit", device)
    images = noise(pair.quantized.backbone, 3, 0, device)
    found, simulated = start_kernels(pair.quantized, images)
    executed, expected = full_depth(roads(pair), images), pair.quantized(images)
    assert found.images == 3
    assert found.largest_difference == max_difference(executed, expected) < 0.1 * found.largest_logit
    assert found.largest_logit == float(expected.abs().max())
    assert found.same_class == pytest.approx(float((executed.argmax(1) == expected.argmax(1)).float().mean()))
    assert simulated == ()


def test_classes_are_counted(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from maqee.bench import kernel_speed

    pair = pair_of("test-vit", device)
    images = noise(pair.quantized.backbone, 4, 0, device)
    with torch.no_grad():
        wrong = pair.quantized(images)
    wrong[0] = -wrong[0]
    monkeypatch.setattr(kernel_speed, "full_depth", lambda roads, images: wrong)
    found, _ = start_kernels(pair.quantized, images)
    assert found.same_class == 0.75
    assert found.largest_difference == pytest.approx(2 * float(wrong[0].abs().max()))


def test_models_that_come_with_weights(tmp_path: Path) -> None:
    cpu, settings = torch.device("cpu"), QuantSettings()
    trained = write_trained_run(tmp_path / "trained", small_model())
    pair = open_pair(str(trained), "none", "rtn", settings, 0, cpu)
    assert (pair.weights, pair.planned, pair.plain.positions) == ("stored", False, (1, 2))
    expected = _qkv(small_model().backbone).bfloat16()
    assert torch.equal(_qkv(pair.plain.backbone), expected)
    compressed, _ = write_compressed_run(tmp_path / "run", small_model(), torch.randn(6, 1, 16, 16))
    pair = open_pair(str(compressed), "none", "rtn", settings, 0, cpu)
    assert (pair.weights, pair.planned, pair.plain.positions) == ("stored", True, (1, 2))
    assert _qkv(pair.plain.backbone).shape == expected.shape


def test_random_weights_come_from_the_seed() -> None:
    cpu = torch.device("cpu")
    one, same, other = (
        _qkv(open_pair("test-vit", "none", "rtn", QuantSettings(), seed, cpu).plain.backbone) for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert float(one.float().std()) == pytest.approx(SPREAD, rel=0.1)


def _qkv(backbone: Backbone) -> Tensor:
    weight = backbone.get_submodule("blocks.0.attn.qkv").weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def test_attention_is_named() -> None:
    pair = pair_of("test-vit", torch.device("cpu"))
    name = attention_backend(pair.plain, noise(pair.plain.backbone, 1, 0, torch.device("cpu")))
    assert name in ("flash", "efficient", "math")


def test_the_table() -> None:
    found = KernelComparison(
        model="vit-base",
        weights="random",
        exits="none",
        method="erq",
        bits="W4A4",
        common_steps=True,
        half_tokens=True,
        seed=3,
        repeats=20,
        device="Some GPU",
        attention="flash",
        simulated=("backbone.head.linear: simulated: it is not quantized",),
        agreement=LogitAgreement(images=256, largest_difference=0.25, largest_logit=8.0, same_class=0.984375),
        rows=(
            BatchRows(
                batch=256,
                kernels=(KernelRow.of("norm 1", None, 25e-6), KernelRow.of("qkv", 178 * 10**9, 200e-6)),
                parts=(PartRow.of("whole network", 0.010, 0.013),),
            ),
        ),
        environment={},
    )
    assert kernel_table(found.to_json()).splitlines() == [
        "vit-base, random weights, erq W4A4, common steps, tokens in float16, seed 3, Some GPU, CUDA graphs, "
        "executed; compiled bf16 has flash attention",
        "batch 256, one block                us      TOPS",
        "norm 1                            25.0          ",
        "qkv                              200.0     890.0",
        "batch 256                       kernels ms  compiled bf16 ms  times as fast",
        "whole network                       10.000            13.000           1.30",
        "logits beside the simulation's, 256 images of noise: at most 0.25 apart (the largest is 8), the same class "
        "for 98.4%",
        "without kernels: backbone.head.linear: simulated: it is not quantized",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "cpu"), "Kernels are timed on a GPU, which cpu is not: run this where CUDA finds one."),
        (("--batch", "0,8"), "batch_size: [0, 8] must be"),
        (("--batch", ","), "batch_size: [] must be"),
        (("--bits", "W9A4"), "bits: 'W9A4' must be like W4A4"),
        (("--patch", "8/8/8"), "patch: '8/8/8' is neither"),
    ],
    ids=["no GPU", "no images", "no batch", "bits", "patch"],
)
def test_what_it_cannot_measure(arguments: tuple[str, ...], words: str) -> None:
    result = invoke("bench", "kernels", "test-vit", *arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, MaqeeError)
    assert words in str(result.exception)


def test_graphs_on_a_gpu(gpu: torch.device) -> None:
    """Every replay is a real one: a job that counts has counted them all."""
    counts = [torch.zeros(1, device=gpu) for _ in range(2)]
    seconds = GraphTimer(repeats=2)([Job(partial(counts[0].add_, 1)), Job(partial(counts[1].add_, 1), copies=4)])
    assert min(seconds) > 0
    graphs = 3 + (3 + 2) * REPLAYS  # before it is recorded, and in every round
    assert [int(count) for count in counts] == [1 + graphs, 1 + 4 * graphs]


def test_all_of_it_on_a_gpu(gpu: torch.device) -> None:
    found = bench_kernels("test-vit", exits="lgvit", common_steps=True, batch=(1, 4), repeats=2, device=str(gpu))
    assert (found.weights, found.executed, found.seed) == ("random", True, 0)
    assert [rows.batch for rows in found.rows] == [1, 4]
    for rows in found.rows:
        assert len(rows.kernels) == len(ATTENTION + MLP)
        assert all(row.microseconds > 0 for row in rows.kernels)
        assert all(part.ratio > 0 for part in rows.parts)
