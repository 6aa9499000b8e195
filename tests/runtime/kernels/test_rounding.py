"""The steps that kernels share, each in a kernel of its own."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

triton = pytest.importorskip("triton", reason="Triton is not installed on this machine")

import triton.language as tl  # noqa: E402

from maqee.runtime.kernels.rounding import nearest_step, normal_share, round_steps, saturated  # noqa: E402


@triton.jit
def gelu_kernel(x, out, step, log_step, N: tl.constexpr, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    place = tl.arange(0, N)
    number = tl.load(x + place)
    tl.store(out + place, number * normal_share(number, step, log_step, COMPILED))


@triton.jit
def share_kernel(x, out, N: tl.constexpr, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    place = tl.arange(0, N)
    tl.store(out + place, nearest_step(saturated(tl.load(x + place), 0.0625, 0.4375, COMPILED), 16.0, -7.0))


@triton.jit
def rounding_kernel(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    place = tl.arange(0, N)
    tl.store(out + place, round_steps(tl.load(x + place), -7.0, 8.0))


@pytest.mark.parametrize("step", [1.0, 0.03])
def test_gelu_is_close_everywhere(step: float, device: torch.device) -> None:
    x = torch.cat([torch.linspace(-12, 12, 4094), torch.tensor([-1e4, 1e4])]).to(device)
    out = torch.empty_like(x)
    gelu_kernel[(1,)](x, out, step, math.log2(step), N=4096, COMPILED=device.type != "cpu")
    apart = (out.double() * step - F.gelu(x.double())).abs()
    assert float((apart - 1e-7 * x.double().abs()).max()) < 2e-6


def test_rounding_is_to_even_and_bounded(device: torch.device) -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 0.4999, 7.5, 8.5, 1e30, -6.5, -7.5, -1e30, 0.0, -0.0, 3.0, -2.51])
    out = torch.empty(16, dtype=torch.int32, device=device)
    rounding_kernel[(1,)](x.to(device), out, N=16)
    assert out.tolist() == [0, 2, 2, 0, -2, 0, 8, 8, 8, -6, -7, -7, 0, 0, 3, -3]
    assert out.tolist() == torch.round(x).clamp(-7, 8).int().tolist()


def test_the_nearest_step_of_a_share_is_the_same(device: torch.device) -> None:
    """Shares of the range from -7 to 9 are exact in binary, so that ties are as they were."""
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 0.4999, 7.5, 8.5, 1e30, -6.5, -7.5, -1e30, 0.0, -0.0, 3.0, -2.51])
    out = torch.empty(16, dtype=torch.int32, device=device)
    share_kernel[(1,)](x.to(device), out, N=16, COMPILED=device.type != "cpu")
    assert out.tolist() == torch.round(x).clamp(-7, 9).int().tolist()
