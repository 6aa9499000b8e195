"""Patches as one matrix product: the numbers, the gradients and the names of a convolution."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from maqee.models import load_backbone
from maqee.models.patches import PatchConv, unfold_patches


def test_patches_by_hand() -> None:
    images = torch.arange(2 * 2 * 4).reshape(1, 2, 2, 4)  # two channels of two rows: 0 1 2 3 / 4 5 6 7, and 8 on
    first, second = unfold_patches(images, 2)[0, 0].tolist()
    assert first == [0, 1, 4, 5, 8, 9, 12, 13]
    assert second == [2, 3, 6, 7, 10, 11, 14, 15]


@pytest.mark.parametrize(
    ("channels", "dim", "size", "shape"), [(3, 8, 4, (8, 12)), (1, 5, 2, (2, 6)), (3, 4, 7, (7, 7))]
)
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels last"])
def test_numbers_and_gradients_of_a_convolution(
    channels: int, dim: int, size: int, shape: tuple[int, int], last: bool
) -> None:
    ours = PatchConv(channels, dim, size).double()
    theirs = nn.Conv2d(channels, dim, size, stride=size).double()
    theirs.load_state_dict(ours.state_dict())  # the same names and shapes
    images = torch.randn(2, channels, *shape, dtype=torch.float64)
    images = images.to(memory_format=torch.channels_last) if last else images
    found, expected = list[torch.Tensor](), list[torch.Tensor]()
    for layer, results in ((ours, found), (theirs, expected)):
        given = images.clone().requires_grad_()
        output = layer(given)
        results.append(output)
        results.extend(torch.autograd.grad(output.square().sum(), [given, *layer.parameters()]))
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("preset", ["test-vit", "test-swin"])
def test_tokens_are_not_copied_about(preset: str) -> None:
    """What the product gives is what the blocks read: no transposition in between."""
    patch = load_backbone(preset).embedding.patch
    assert isinstance(patch, PatchConv)
    tokens = patch(torch.randn(2, 3, 32, 32)).flatten(2).transpose(1, 2)
    assert tokens.is_contiguous()
