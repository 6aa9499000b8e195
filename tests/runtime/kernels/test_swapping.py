"""Networks on kernels: the same tokens, predictions and decisions as the integer reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import maqee
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, add_exits
from maqee.exits.segment import SegmentOutput
from maqee.models import Swin, SwinConfig, load_backbone
from maqee.quant import QuantizedModel, QuantSettings, quantize
from maqee.quant.integer import execute_integers
from maqee.runtime import use_cuda_graphs
from maqee.tasks import tasks
from tests.helpers import randomize
from tests.quant.makers import EVERYTHING, pictures
from tests.runtime.makers import small_model, write_compressed_run, write_trained_run

IMAGES = 2
THROUGHOUT = "codes throughout, norm and sum in the same kernels"


@pytest.fixture
def images() -> Tensor:
    return torch.randn(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def quantized(preset: str, method: str, exits: str, **wanted: Any) -> QuantizedModel:
    """A miniature whose attention has preferences: where all tokens count alike, many numbers are exactly tied."""
    model = randomize(add_exits(load_backbone(preset), exits), std=0.3)
    return quantize(model, pictures(), method, QuantSettings(**wanted))


def walk(
    model: EarlyExitModel, count: int, images: int, size: int
) -> list[tuple[tuple[Tensor, dict[int, Tensor]], SegmentOutput]]:
    """What goes into each of the first segments and what comes out."""
    x = torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(5))
    kept: dict[int, Tensor] = {}
    seen = []
    for segment in model.segments[:count]:
        inputs = x, dict(kept)
        outputs = segment(x, kept)
        seen.append((inputs, outputs))
        x, kept = outputs.x, kept | outputs.kept
    return seen


def early_exit_model(quantized_model: QuantizedModel) -> EarlyExitModel:
    model = quantized_model.model
    assert isinstance(model, EarlyExitModel)
    return model


def assert_nearly_all_equal(got: Tensor, expected: Tensor) -> None:
    """A number in the middle of two codes may become either, and changes what is computed from it a little."""
    largest = float(expected.abs().max())
    apart = (got.cpu() - expected).abs() / largest
    assert float((apart < 1e-5).float().mean()) > 0.95
    assert float(apart.max()) < 0.1


@torch.no_grad()
def compare(
    quantized_model: QuantizedModel, count: int, device: torch.device, images: int = IMAGES, size: int = 32
) -> list[str]:
    """Segments on kernels against the reference, from equal inputs; how each part was computed."""
    from maqee.runtime.kernels.swapping import describe, use_kernels

    model = early_exit_model(quantized_model)
    with execute_integers(quantized_model):
        reference = walk(model, count, images, size)
    model.to(device)
    use_kernels(model)
    for segment, ((x, kept), expected) in zip(model.segments, reference, strict=False):
        got = segment(x.to(device), {block: tokens.to(device) for block, tokens in kept.items()})
        assert_nearly_all_equal(got.x, expected.x)
        assert_nearly_all_equal(got.output, expected.output)
        assert got.confidence.shape == (images,)
    return [f"{line.name}: {line.how}" for line in describe(model)]


@pytest.mark.parametrize("bits", [4, 8])
def test_lgvit_heads_and_weights_in_two_groups(bits: int, device: torch.device) -> None:
    model = quantized("test-vit", "erq", "lgvit", weight_bits=bits, act_bits=bits, **EVERYTHING)
    assert any(layer.state().group is not None for layer in model.layers.values())  # type: ignore[union-attr]
    lines = compare(model, 3, device)
    assert "backbone.blocks.0.attn: codes throughout, norm and sum in the same kernels" in lines
    assert "backbone.embedding.patch: codes, one sum" in lines
    assert "heads.0: codes throughout" in lines
    assert "heads.2.attention: codes throughout" in lines
    assert not any("simulated" in line for line in lines)


def test_groups_with_common_steps_are_one_sum(device: torch.device) -> None:
    from maqee.runtime.kernels.fitness import store_layer
    from maqee.runtime.kernels.stored import StoredWeights

    model = quantized("test-vit", "erq", "mlp", weight_bits=4, act_bits=4, common_steps=True)
    stored = [store_layer(layer) for name, layer in model.layers.items() if name.endswith((".qkv", ".fc1"))]
    assert all(isinstance(weights, StoredWeights) and weights.groups == 1 for weights in stored)
    assert "backbone.blocks.0.mlp: codes throughout, norm and sum in the same kernels" in compare(model, 1, device)


def test_layers_without_kernels_are_simulated(device: torch.device) -> None:
    lines = compare(quantized("test-dinov2", "mptq", "mlp", weight_bits=6, act_bits=6), 1, device)
    assert "backbone.blocks.0.attn: codes throughout, norm and sum in the same kernels" in lines
    assert "backbone.blocks.0.mlp.fc1: codes, one sum" in lines
    assert "backbone.blocks.0.mlp.fc2: simulated: it has an input with a twin grid" in lines


def test_decoders_read_patches_of_four_blocks(device: torch.device) -> None:
    from maqee.runtime.kernels.segformer_head import KernelSegformerHead
    from maqee.runtime.kernels.swapping import KernelSegment

    model = quantized("test-vit", "rtn", "segformer", weight_bits=6, act_bits=6)
    early_exit_model(model).use_confidence(tasks["segmentation"].confidence)
    assert "heads.0.projections.0: codes, one sum" in compare(model, 1, device)
    segment = early_exit_model(model).segments[0]
    assert isinstance(segment, KernelSegment)
    assert isinstance(segment.head, KernelSegformerHead)


@pytest.mark.parametrize(("method", "bits"), [("rtn", 7), ("erq", 4)])
def test_swin_in_windows(method: str, bits: int, device: torch.device) -> None:
    """Two blocks, of which the second is shifted, so that windows have masks of their own."""
    model = quantized("test-swin", method, "mlp", weight_bits=5, act_bits=bits)
    lines = compare(model, 1, device)
    assert [f"backbone.blocks.{number}.attn: {THROUGHOUT}" in lines for number in range(6)] == [True] * 6
    assert "backbone.blocks.0.mlp: codes throughout, norm and sum in the same kernels" in lines
    assert not any("simulated" in line for line in lines)


def test_pictures_that_windows_do_not_fit(device: torch.device) -> None:
    """A grid of 6 x 6 has windows of 4 that are filled up: attention is simulated, the layers around it are not."""
    config = load_backbone("test-swin").config
    assert isinstance(config, SwinConfig)
    network = randomize(EarlyExitModel(Swin(replace(config, image_size=(12, 12))), (2,), ("mlp",)), std=0.3)
    model = quantize(network, torch.randn(4, 3, 12, 12), "rtn", QuantSettings(weight_bits=5, act_bits=7))
    lines = compare(model, 1, device, size=12)
    assert "backbone.blocks.0.attn.qkv: codes, one sum" in lines
    assert "backbone.blocks.0.attn.attend: simulated: the picture is filled up to whole windows" in lines
    assert "backbone.blocks.0.mlp: codes throughout, norm and sum in the same kernels" in lines


@torch.no_grad()
def test_more_tokens_than_the_kernel_holds(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from maqee.runtime.kernels import branches
    from maqee.runtime.kernels.swapping import use_kernels

    model = early_exit_model(quantized("test-vit", "rtn", "mlp", weight_bits=4, act_bits=8)).to(device)
    use_kernels(model)
    x = torch.randn(IMAGES, 3, 32, 32, device=device)
    expected = model.segments[0](x, {})
    monkeypatch.setattr(branches, "MOST_TOKENS", 3)
    got = model.segments[0](x, {})
    assert_nearly_all_equal(got.x, expected.x.cpu())


def test_same_decisions_as_the_reference(tmp_path: Path, images: Tensor, device: torch.device) -> None:
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    expected = maqee.load(folder, engine="reference").run(images)
    model = maqee.load(folder, engine="triton", device=str(device))
    decision = model.run(images.to(device))
    assert len(set(expected.exit.tolist())) > 1, "a policy that sends everybody to one exit shows nothing"
    assert torch.equal(decision.exit.cpu(), expected.exit)
    assert torch.equal(decision.output.cpu().argmax(dim=-1), expected.output.argmax(dim=-1))
    again = model.to(device).run(images[:1].to(device))  # kernels are prepared anew, not on top of each other
    assert torch.equal(again.output, decision.output[:1])


def test_recorded_on_a_gpu(tmp_path: Path, images: Tensor, gpu: torch.device) -> None:
    """Kernels in CUDA graphs: what is measured for the choice of tiles must not be recorded."""
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    model = maqee.load(folder, engine="triton", device=str(gpu))
    expected = model.run(images.to(gpu))
    use_cuda_graphs(model.model)
    for _ in range(2):
        decision = model.run(images.to(gpu))
        assert torch.equal(decision.exit, expected.exit)
        assert torch.equal(decision.output, expected.output)


def test_needs_codes(tmp_path: Path, device: torch.device) -> None:
    folder = write_trained_run(tmp_path / "run", small_model())
    with pytest.raises(MaqeeError, match="not compressed: use torch"):
        maqee.load(folder, engine="triton", device=str(device))


def test_needs_a_gpu(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    from maqee.runtime.kernels.swapping import check_device

    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    with pytest.raises(MaqeeError, match="runs on a GPU, not on cpu: give the device cuda"):
        check_device(torch.device("cpu"))


def test_needs_triton(tmp_path: Path, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    monkeypatch.setattr("maqee.runtime.engines.find_spec", lambda name: None)
    with pytest.raises(MaqeeError, match=r"needs triton.*pip install 'maqee\[triton\]'"):
        maqee.load(folder, engine="triton")
