"""LGViT's heads on kernels: the answers of the integer reference, without a copy of all tokens on the way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from maqee.exits import EarlyExitModel, add_exits
from maqee.exits.lgvit import GlobalHead, LocalHead
from maqee.models import load_backbone
from maqee.models.config import ViTConfig
from maqee.models.load import build_backbone
from maqee.quant import QuantizedModel, QuantSettings, quantize
from maqee.quant.integer import execute_integers
from maqee.quant.layer import QuantLayer
from maqee.runtime.kernels.passing import Coded
from maqee.runtime.kernels.stored import StoredWeights
from tests.helpers import randomize
from tests.quant.makers import pictures

SMALL: dict[str, Any] = {
    "image_size": (12, 24),
    "patch_size": 4,
    "dim": 32,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 64,
    "num_classes": 10,
}
KINDS = ("local-3x3", "local-1x1", "global-s1", "global-s2", "global-s3")
VARIANTS: dict[str, dict[str, Any]] = {
    "class": {},
    "distillation": {"distillation_token": True, "readout": "class+distillation"},
    "registers": {"registers": 3, "readout": "class+mean"},
}


def quantized(kind: str, bits: int, **other: Any) -> QuantizedModel:
    """One exit of a small ViT with three rows of six patches."""
    model = randomize(add_exits(build_backbone(ViTConfig(**(SMALL | other))), kind, positions=(1,)), std=0.3)
    images = torch.randn(4, 3, 12, 24, generator=torch.Generator().manual_seed(3))
    return quantize(model, images, "rtn", QuantSettings(weight_bits=bits, act_bits=bits))


def head_of(model: QuantizedModel) -> LocalHead | GlobalHead:
    """Its head, with a float classifier: codes of what comes in front of it would hide how near that is."""
    assert isinstance(model.model, EarlyExitModel)
    head = model.model.head(0)
    assert isinstance(head, LocalHead | GlobalHead)
    for name, layer in head.readout.named_children():
        assert isinstance(layer, QuantLayer)
        setattr(head.readout, name, layer.inner)
    return head


def some_tokens(head: LocalHead | GlobalHead, images: int = 2) -> Tensor:
    """As they come out of blocks: channels of all sizes."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(images, head.shape.tokens, 32, generator=generator) * torch.linspace(0.2, 4, 32)


def assert_answers(got: Tensor, expected: Tensor) -> None:
    """The same, but for one image at most, which may have had a tie."""
    apart = (got.cpu() - expected).abs().amax(dim=1) / float(expected.abs().max())
    assert int((apart > 1e-5).sum()) <= 1
    assert float(apart.max()) < 0.1


def long_way(head: LocalHead | GlobalHead, codes: Tensor, x: Tensor) -> Tensor:
    """What follows from the codes that the last layer reads: features of every patch, and their mean."""
    from maqee.runtime.kernels.fitness import store_layer
    from maqee.runtime.kernels.passing import Affine
    from maqee.runtime.kernels.statements import state_linear

    front = head.shape.prefix_tokens
    patches = head.norm(head.select(x[:, front:]))
    last = store_layer(head.project if isinstance(head, LocalHead) else head.attention.proj)
    assert isinstance(last, StoredWeights)
    if isinstance(head, LocalHead):
        last = Affine.of(head.project_norm).behind(last)
    features = state_linear(F.pad(codes, (0, last.width - 32)), last).view_as(patches)
    if isinstance(head, LocalHead):
        features = features + patches
    logits: Tensor = head.readout(features.mean(dim=1, keepdim=True) + head.norm(x[:, :front]))
    return logits


@pytest.mark.parametrize(
    ("kind", "bits"), [*((kind, 4) for kind in KINDS), ("local-3x3-raw", 8), ("local-1x1", 8), ("global-s2-raw", 8)]
)
@torch.no_grad()
def test_the_mean_of_codes_is_enough(kind: str, bits: int, device: torch.device) -> None:
    from maqee.runtime.kernels.lgvit_heads import KernelLocalHead, PooledHead
    from maqee.runtime.kernels.swapper import Swapper

    head = head_of(quantized(kind, bits))
    swapped, x = Swapper().swap(copy.deepcopy(head).to(device), "head"), some_tokens(head)
    assert isinstance(swapped, PooledHead)
    coded = swapped.read(x.to(device)).coded
    assert coded is not None
    codes = swapped.last_codes(coded, len(x))
    if isinstance(swapped, KernelLocalHead) and swapped.depthwise is not None:  # that are sums; the codes themselves
        middle = swapped.expand(coded)
        assert isinstance(middle, Coded)
        codes = swapped.depthwise(middle).codes
    expected = long_way(head, codes.cpu()[:, :32], x)
    assert torch.allclose(swapped(x.to(device)).cpu(), expected, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        ("local-3x3", "class"),
        ("local-1x1", "distillation"),
        ("local-1x1", "registers"),
        ("global-s2", "class"),
        ("global-s2", "distillation"),
    ],
)
@torch.no_grad()
def test_same_answers_as_the_reference(kind: str, variant: str, device: torch.device) -> None:
    """A number in the middle of two codes may become either, and moves the answer for its image, and no other."""
    from maqee.runtime.kernels.swapper import Swapper

    model = quantized(kind, 6, **VARIANTS[variant])
    head = head_of(model)
    x = some_tokens(head, 3)
    with execute_integers(model):
        expected = head(x)
    got = Swapper().swap(head.to(device), "head")(x.to(device))
    assert_answers(got, expected)


@pytest.mark.parametrize("kind", ["local-3x3", "global-s2"])
@torch.no_grad()
def test_tokens_in_half(kind: str, device: torch.device) -> None:
    from maqee.runtime.kernels.swapper import Swapper

    head = head_of(quantized(kind, 4)).to(device)
    swapped, x = Swapper().swap(head, "head"), some_tokens(head).half().to(device)
    assert torch.equal(swapped(x), swapped(x.float()))


@pytest.mark.parametrize("scheme", ["local-3x3", "local-1x1"])
@torch.no_grad()
def test_without_special_tokens(scheme: str, device: torch.device) -> None:
    """A norm stands in front of the mean, so that it needs the features of every patch."""
    from maqee.runtime.kernels.lgvit_heads import KernelFeaturesHead
    from maqee.runtime.kernels.swapper import Swapper

    network = randomize(add_exits(load_backbone("test-swin"), scheme, positions=(3,)), std=0.3)
    model = quantize(network, pictures(), "rtn", QuantSettings(weight_bits=6, act_bits=6))
    head = head_of(model)
    x = torch.randn(2, head.shape.tokens, head.shape.dim, generator=torch.Generator().manual_seed(7))
    with execute_integers(model):
        expected = head(x)
    swapped = Swapper().swap(head.to(device), "head")
    assert isinstance(swapped, KernelFeaturesHead)
    assert_answers(swapped(x.to(device)), expected)


@torch.no_grad()
def test_more_patches_than_attention_has_room_for(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from maqee.runtime.kernels import lgvit_heads
    from maqee.runtime.kernels.swapper import Swapper

    head = head_of(quantized("global-s2", 4)).to(device)
    swapped, x = Swapper().swap(head, "head"), some_tokens(head).half().to(device)
    expected = swapped(x)
    monkeypatch.setattr(lgvit_heads, "MOST_TOKENS", 3)
    assert torch.allclose(swapped(x), expected, atol=1e-5 * float(expected.abs().max()))


class Floats(TorchDispatchMode):
    """Remembers how many numbers the float tensors had that PyTorch made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point() and func is not torch.ops.aten.detach.default:
            self.sizes.append(result.numel())
        return result


@pytest.mark.parametrize("kind", ["local-3x3", "local-1x1", "global-s1"])
@torch.no_grad()
def test_no_copy_of_all_tokens(kind: str, device: torch.device) -> None:
    """What is normalised, sliced, added or pooled is never written down for every token, in float."""
    from maqee.runtime.kernels.swapper import Swapper

    head = head_of(quantized(kind, 4)).to(device)
    swapped, x = Swapper().swap(head, "head"), some_tokens(head, 1).to(device)
    with Floats() as floats:
        swapped(x)
    made = [size for size in floats.sizes if size != x.numel()]  # the tokens themselves are looked at
    assert made
    assert max(made) < x[:, head.shape.prefix_tokens :].numel()
