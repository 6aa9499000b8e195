"""Images to the stream: codes of patches, and tokens at their places, against what they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.models.config import ViTConfig
from maqee.models.load import build_backbone
from maqee.models.patches import unfold_patches
from maqee.models.vit import Embedding, ViT
from maqee.quant import Bits, QuantizedModel, QuantSettings, quantize
from maqee.quant.integer import execute_integers
from maqee.quant.settings import FLOAT
from maqee.runtime.kernels.stored import StoredWeights
from tests.helpers import randomize
from tests.quant.makers import pictures
from tests.runtime.kernels.makers import Case, make_layer

SMALL = {"image_size": (16, 16), "patch_size": 4, "dim": 32, "depth": 1, "heads": 2, "mlp_dim": 64, "num_classes": 10}


@pytest.mark.parametrize("case", [Case(4, 4, 7), Case(8, 8, 100), Case(8, 8, 31, grouped=True)], ids=str)
@pytest.mark.parametrize(("channels", "side"), [(3, 4), (1, 14), (4, 8)], ids=["3x4", "1x14", "4x8"])
def test_patches_are_coded_where_they_lie(case: Case, channels: int, side: int, device: torch.device) -> None:
    from maqee.runtime.kernels.fitness import store_layer
    from maqee.runtime.kernels.patch_codes import PatchCoder
    from maqee.runtime.kernels.rows import RowCoder

    weights = store_layer(make_layer(case, channels * side**2, 6).to(device))
    assert isinstance(weights, StoredWeights)
    images = torch.randn(2, channels, 3 * side, 2 * side, generator=torch.Generator().manual_seed(0)).to(device)
    for given in (images, images.bfloat16(), images.flip(3).transpose(2, 3).contiguous().transpose(2, 3)):
        expected = RowCoder(weights)(unfold_patches(given, side))
        got = PatchCoder(weights, (side, side))(given)
        assert torch.equal(got.codes, expected.codes)
        assert (got.sums is None) == (expected.sums is None)
        if got.sums is not None and expected.sums is not None:
            assert torch.equal(got.sums, expected.sums)


def quantized(patch: Bits, **other: Any) -> QuantizedModel:
    """A small ViT with random weights."""
    model = randomize(build_backbone(ViTConfig(**(SMALL | other))), std=0.3)  # type: ignore[arg-type]
    return quantize(model, pictures(8, side=16), "rtn", QuantSettings(weight_bits=4, act_bits=4, patch=patch))


VARIANTS: dict[str, dict[str, Any]] = {
    "class": {},
    "distillation": {"distillation_token": True, "readout": "class+distillation"},
    "registers": {"registers": 3},
    "detection": {"detection_tokens": 5, "readout": "detection"},
    "norm": {"pre_norm": True},
}


@pytest.mark.parametrize("size", [(16, 16), (12, 20)], ids=["at home", "resized"])
@pytest.mark.parametrize("patch", [Bits(8, 8), FLOAT, Bits(8, None)], ids=str)
@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_tokens_at_their_places(name: str, patch: Bits, size: tuple[int, int], device: torch.device) -> None:
    from maqee.runtime.kernels.embedding import KernelEmbedding
    from maqee.runtime.kernels.passing import in_half
    from maqee.runtime.kernels.swapper import Swapper

    model = quantized(patch, **VARIANTS[name])
    vit = model.model
    assert isinstance(vit, ViT)
    images = torch.randn(3, 3, *size, generator=torch.Generator().manual_seed(1))
    with execute_integers(model):
        expected = vit.embedding(images)
    vit.to(device)
    swapped = Swapper().swap(vit.embedding, "embedding")
    assert isinstance(swapped, KernelEmbedding)
    assert (swapped.coder is not None) == (patch == Bits(8, 8))
    got = swapped(images.to(device))
    assert got.dtype == torch.float32
    if device.type == "cpu":
        assert torch.equal(got, expected)
    assert float((got.cpu() - expected).abs().max()) < 1e-5 * float(expected.abs().max())
    halves = Swapper(half_tokens=True).swap(vit.embedding, "embedding")(images.to(device))
    assert halves.dtype == torch.float16
    assert torch.equal(halves, in_half(got))


def test_images_of_no_whole_patches(device: torch.device) -> None:
    from maqee.runtime.kernels.swapper import Swapper

    vit = quantized(Bits(8, 8)).model.to(device)
    assert isinstance(vit, ViT)
    embedding = Swapper().swap(vit.embedding, "embedding")
    with pytest.raises(MaqeeError, match="Images of 16x15 do not divide into patches of 4"):
        embedding(torch.zeros(1, 3, 16, 15, device=device))


def test_places_by_hand(device: torch.device) -> None:
    """One channel, two patches, a class token: what is written where."""
    from maqee.runtime.kernels.embedding import place_rows
    from maqee.runtime.kernels.passing import Places

    table = torch.tensor([[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]], device=device)
    tokens: Tensor = torch.zeros(2, 3, 2, device=device, dtype=torch.float16)
    patches = torch.tensor([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0], [7e4, -7e4]], device=device)
    place_rows(patches, Places(table, front=1, patches=2), tokens)
    assert tokens.tolist() == [[[0, 0], [11, 22], [33, 44]], [[0, 0], [51, 62], [65504, -65504]]]


def test_the_embedding_itself_is_left_alone(device: torch.device) -> None:
    from maqee.runtime.kernels.swapper import Swapper

    vit = quantized(FLOAT).model.to(device)
    assert isinstance(vit, ViT)
    embedding = vit.embedding
    Swapper().swap(vit, "vit")
    assert vit.embedding is embedding
    assert isinstance(embedding, Embedding)
