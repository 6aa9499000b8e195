"""Tokens in float16 between kernels: what the kernels compute in float32, rounded once after every branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import maqee
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.models.vit import Block, LayerScale, ViT
from maqee.quant import QuantizedModel, QuantSettings, quantize
from tests.helpers import randomize
from tests.quant.makers import EVERYTHING, pictures
from tests.runtime.kernels.makers import Case, make_layer
from tests.runtime.makers import small_model, write_compressed_run


def quantized(preset: str, method: str, exits: str, **wanted: Any) -> QuantizedModel:
    model = randomize(add_exits(load_backbone(preset), exits), std=0.3)
    return quantize(model, pictures(side=32), method, QuantSettings(weight_bits=4, act_bits=4, **wanted))


def half_tokens(images: int = 2, tokens: int = 17, dim: int = 32) -> Tensor:
    return (3 * torch.randn(images, tokens, dim, generator=torch.Generator().manual_seed(4))).half()


def test_in_half_by_hand() -> None:
    from maqee.runtime.kernels.passing import in_half

    given = torch.tensor([1.0, 65504.0, 65519.0, 65520.0, 1e9, -1e9, 467.1])
    assert in_half(given).tolist() == [1, 65504, 65504, 65504, 65504, -65504, 467.0]
    already = torch.ones(2).half()
    assert in_half(already) is already


@pytest.mark.parametrize("normed", [True, False], ids=["norm", "plain"])
def test_rows_are_read_as_they_are(normed: bool, device: torch.device) -> None:
    from maqee.runtime.kernels.fitness import store_layer
    from maqee.runtime.kernels.rows import RowCoder
    from maqee.runtime.kernels.stored import StoredWeights

    weights = store_layer(make_layer(Case(4, 4, 7), 70, 6).to(device))
    assert isinstance(weights, StoredWeights)
    norm = nn.LayerNorm(70).to(device) if normed else None
    x = half_tokens(3, 5, 70).to(device)
    assert torch.equal(RowCoder(weights, norm)(x).codes, RowCoder(weights, norm)(x.float()).codes)


@pytest.mark.parametrize(
    ("preset", "method"), [("test-vit", "erq"), ("test-dinov2", "mptq")], ids=["kernels", "simulated fc2"]
)
@torch.no_grad()
def test_a_block_rounds_after_each_branch(preset: str, method: str, device: torch.device) -> None:
    """Bit for bit the kernels with a stream in float32, rounded between them."""
    from maqee.runtime.kernels.passing import in_half
    from maqee.runtime.kernels.swapper import Swapper

    vit = early_exit(quantized(preset, method, "mlp")).backbone.to(device)
    block = vit.blocks[0]
    exact, rounded = Swapper().swap(block, "block"), Swapper(half_tokens=True).swap(block, "block")
    assert isinstance(exact, nn.Sequential)
    x = half_tokens(dim=vit.config.dim).to(device)
    between = in_half(exact[0](x.float()))
    expected = in_half(exact[1](between.float()))
    got = rounded(x)
    assert got.dtype == torch.float16
    assert torch.equal(got, expected)
    assert not torch.equal(got.float(), exact(x.float())), "nothing was rounded"


@torch.no_grad()
def test_a_block_with_layer_scale_is_rounded_at_its_end(device: torch.device) -> None:
    from maqee.runtime.kernels.swapper import Swapper

    block = randomize(Block(32, 2, 64, layer_scale=True), std=0.3).to(device)
    assert isinstance(block, Block)
    assert isinstance(block.scale1, LayerScale)
    x = half_tokens().to(device)
    got = Swapper(half_tokens=True).swap(block, "block")(x)
    assert torch.equal(got, block(x.float()).half())


@pytest.mark.parametrize(
    ("preset", "exits", "method"),
    [
        ("test-vit", "lgvit", "erq"),
        ("test-vit", "lgvit-raw", "rtn"),
        ("test-vit", "mlp", "rtn"),
        ("test-vit", "segformer", "rtn"),
        ("test-vit", "vit", "rtn"),
    ],
    ids=["lgvit", "lgvit without norm", "norm", "earlier blocks", "encoder"],
)
@torch.no_grad()
def test_heads_read_tokens_in_half(preset: str, exits: str, method: str, device: torch.device) -> None:
    """What goes from road to road is float16; what heads say is what they say of these tokens in float32."""
    from maqee.runtime.kernels.swapping import KernelSegment, use_kernels

    model = early_exit(quantized(preset, method, exits, **EVERYTHING)).to(device)
    use_kernels(model)
    exact = model.segments
    use_kernels(model, half_tokens=True)
    x: Tensor = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5)).to(device)
    kept: dict[int, Tensor] = {}
    for segment, other in zip(model.segments, exact, strict=True):
        assert isinstance(segment, KernelSegment)
        assert isinstance(other, KernelSegment)
        x, new, output, _ = segment(x, kept)
        kept |= new
        assert x.dtype == torch.float16
        assert all(tokens.dtype == torch.float16 for tokens in kept.values())
        assert output.dtype == torch.float32
        floats = {block: tokens.float() for block, tokens in kept.items()}
        assert torch.equal(output, other.predict(x.float(), floats))


@torch.no_grad()
def test_positions_between_blocks(device: torch.device) -> None:
    """They are added in float32, and tokens are rounded again."""
    from maqee.runtime.kernels.swapping import use_kernels

    model = EarlyExitModel(randomize(load_backbone("test-yolos"), std=0.3), (), ())  # type: ignore[arg-type]
    assert isinstance(model.backbone, ViT)
    assert model.backbone.mid_position is not None
    images = torch.randn(2, 3, *model.backbone.config.image_size, generator=torch.Generator().manual_seed(5))
    fitted = quantize(model, images, "rtn", QuantSettings(weight_bits=8, act_bits=8)).model
    assert isinstance(fitted, EarlyExitModel)
    fitted.to(device)
    use_kernels(fitted)
    expected = fitted.segments[0](images.to(device), {})
    use_kernels(fitted, half_tokens=True)
    got = fitted.segments[0](images.to(device), {})
    assert got.x.dtype == torch.float16
    assert float((got.output - expected.output).abs().max()) < 0.1 * float(expected.output.abs().max())


def test_asked_for_at_loading(tmp_path: Path, device: torch.device) -> None:
    images = torch.randn(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    model = maqee.load(folder, engine="triton", device=str(device), half_tokens=True)
    assert model.to_json()["half_tokens"] is True
    first = model.run(images.to(device))
    assert first.output.dtype == torch.float32
    assert model.model.segments[0](images.to(device), {}).x.dtype == torch.float16
    again = model.to(device)  # prepared anew, with the same choice
    assert again.model.segments[0](images.to(device), {}).x.dtype == torch.float16
    plain = maqee.load(folder, engine="triton", device=str(device))
    assert plain.model.segments[0](images.to(device), {}).x.dtype == torch.float32


def test_where_it_is_not_possible(tmp_path: Path, device: torch.device) -> None:
    from maqee.runtime.kernels.swapping import use_kernels

    images = torch.randn(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    with pytest.raises(MaqeeError, match=r"half_tokens: .* for the engine triton, not for reference: leave it out"):
        maqee.load(folder, engine="reference", half_tokens=True)
    with pytest.raises(MaqeeError, match=r"half_tokens: .* are for plain ViTs, which this model is not"):
        use_kernels(EarlyExitModel(load_backbone("test-swin"), (), ()), half_tokens=True)


def early_exit(model: QuantizedModel) -> EarlyExitModel:
    assert isinstance(model.model, EarlyExitModel)
    return model.model
