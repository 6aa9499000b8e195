"""The steps that kernels share, each in a kernel of its own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

triton = pytest.importorskip("triton", reason="Triton is not installed on this machine")

import triton.language as tl  # noqa: E402

from maqee.runtime.kernels.rounding import gelu, round_steps  # noqa: E402


@triton.jit
def gelu_kernel(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    place = tl.arange(0, N)
    tl.store(out + place, gelu(tl.load(x + place)))


@triton.jit
def rounding_kernel(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    place = tl.arange(0, N)
    tl.store(out + place, round_steps(tl.load(x + place), -7.0, 8.0))


def test_gelu_is_close_everywhere(device: torch.device) -> None:
    x = torch.linspace(-12, 12, 4096, device=device)
    out = torch.empty_like(x)
    gelu_kernel[(1,)](x, out, N=4096)
    assert float((out.double() - F.gelu(x.double())).abs().max()) < 2e-6


def test_rounding_is_to_even_and_bounded(device: torch.device) -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 0.4999, 7.5, 8.5, 1e30, -6.5, -7.5, -1e30, 0.0, -0.0, 3.0, -2.51])
    out = torch.empty(16, dtype=torch.int32, device=device)
    rounding_kernel[(1,)](x.to(device), out, N=16)
    assert out.tolist() == [0, 2, 2, 0, -2, 0, 8, 8, 8, -6, -7, -7, 0, 0, 3, -3]
    assert out.tolist() == torch.round(x).clamp(-7, 8).int().tolist()
