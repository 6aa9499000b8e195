"""Attention in short windows, two compiled products on a GPU: the numbers and gradients of fused kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from maqee.models.layers import FEW_TOKENS, Attend, attend_to_few
from tests.helpers import max_difference


def operands(tokens: int, device: torch.device | str = "cpu") -> list[Tensor]:
    """q, k and v of 6 windows and 3 heads, and a bias that all windows share."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 3, tokens, 8)] * 3 + [(1, 3, tokens, tokens)]
    return [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in shapes]


def gradients(y: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    return torch.autograd.grad((y * torch.randn(y.shape, generator=generator).to(y)).sum(), inputs)


@pytest.mark.parametrize("tokens", [4, 9, 16])
@pytest.mark.parametrize("biased", [False, True])
def test_numbers_and_gradients_of_the_fused_kernels(tokens: int, biased: bool) -> None:
    q, k, v, bias = operands(tokens)
    inputs = [q, k, v, bias] if biased else [q, k, v]
    used = bias if biased else None
    few, fused = attend_to_few(q, k, v, used), Attend()(q, k, v, used)
    torch.testing.assert_close(few, fused)
    torch.testing.assert_close(gradients(few, inputs), gradients(fused, inputs))


def test_half_precision_comes_back() -> None:
    q, k, v, bias = (x.detach().bfloat16() for x in operands(16))
    few = attend_to_few(q, k, v, bias)
    assert few.dtype == torch.bfloat16
    assert max_difference(few.float(), Attend()(q, k, v, bias).float()) < 0.03


@pytest.mark.parametrize("tokens", [FEW_TOKENS, FEW_TOKENS + 1])
def test_compiled_on_a_gpu(tokens: int, gpu: torch.device) -> None:
    inputs = operands(tokens, gpu)
    compiled = torch.compile(Attend(), dynamic=False)
    torch.testing.assert_close(compiled(*inputs), Attend()(*inputs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        gradients(compiled(*inputs), inputs), gradients(Attend()(*inputs), inputs), rtol=1e-3, atol=1e-4
    )
