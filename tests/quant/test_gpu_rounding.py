"""Rounding in one pass gives the terms that PyTorch gives; products of short whole numbers are exact.

Kernels run compiled where there is a GPU, and in Triton's interpreter elsewhere.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.quant import quantize
from maqee.quant.coded import GridModule
from maqee.quant.grids import Grid, LogSqrt2Grid, UniformGrid
from maqee.quant.sums import SHORT, tensor_cores
from maqee.quant.terms import operand_terms, terms_in_one_pass
from tests.runtime.makers import small_model

pytest.importorskip("triton", reason="Triton is not installed on this machine")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def uniform(bits: int, scale: float, zero: float) -> UniformGrid:
    return UniformGrid(bits, torch.tensor(scale), torch.tensor(zero))


def check(grid: Grid, x: Tensor) -> None:
    """The same whole numbers, steps and order in memory as PyTorch has on the CPU."""
    expected = operand_terms(grid, x)
    moved = GridModule(grid).to(DEVICE).grid
    found = terms_in_one_pass(moved, x.to(DEVICE))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.codes.cpu(), other.codes)
        assert one.codes.stride() == torch.empty_like(x).stride()
        assert torch.equal(one.step.cpu(), other.step)


def test_halves_infinities_and_ends_by_hand() -> None:
    x = torch.tensor([-9.0, -0.5, -0.25, 0.0, 0.25, 0.75, 1.25, 2.0, 9.0, torch.inf, -torch.inf, 3e38])
    grid = uniform(3, 0.5, 2.0)
    (found,) = terms_in_one_pass(GridModule(grid).to(DEVICE).grid, x.to(DEVICE))
    assert found.codes.tolist() == [-2, -1, 0, 0, 0, 2, 2, 4, 5, 5, -2, 5]
    check(grid, x)


@given(
    bits=st.integers(2, 8),
    scale=st.floats(1e-3, 10),
    zero=st.integers(-300, 300),
    seed=st.integers(0, 99),
    shape=st.sampled_from([(1,), (7, 3), (2, 33, 40), (2, 3, 5, 48)]),
)
@settings(max_examples=25)
def test_uniform_grids(bits: int, scale: float, zero: int, seed: int, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale * 2**bits
    check(uniform(bits, scale, float(zero)), x)


def test_views_in_another_order_and_with_gaps() -> None:
    qkv = torch.randn(2, 5, 3, 4, 8)  # (batch, tokens, which, heads, width)
    q, k, _ = qkv.permute(2, 0, 3, 1, 4)
    for view in (q, k.transpose(-2, -1), qkv.transpose(1, 3)):
        assert not view.is_contiguous()
        check(uniform(4, 0.2, 7.0), view)


@pytest.mark.parametrize("bits", [2, 3, 4, 5])
def test_logarithmic_grids(bits: int) -> None:
    """Every code and what lies beside it; a hair beside the middle, where another logarithm could fall either way."""
    code = torch.arange(0, 2**bits + 4).repeat_interleave(3)
    beside = torch.tensor([-0.49, 0.0, 0.49]).repeat(2**bits + 4)
    x = torch.cat([0.7 * torch.exp2(-(code + beside) / 2), torch.tensor([0.0, 0.9, 1e-30, 1e-42])])
    check(LogSqrt2Grid(bits, torch.tensor(0.7)), x)


def test_tensor_cores_are_allowed_inside_alone() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    with tensor_cores(False):
        assert torch.backends.cuda.matmul.fp32_precision == before
    with tensor_cores(True):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_short_products_are_exact_on_a_gpu(gpu: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    for largest, length in ((15, 3072), (255, 250), (SHORT, 3)):  # sums stay below 2^24
        left = torch.randint(-largest, largest + 1, (300, length), generator=generator)
        right = torch.randint(-largest, largest + 1, (length, 200), generator=generator)
        left[0], right[:, 0] = largest, largest
        with tensor_cores(True):
            found = left.float().to(gpu) @ right.float().to(gpu)
        assert torch.equal(found.cpu().long(), left @ right)


def test_a_network_on_a_gpu_gives_what_pytorch_alone_gives(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    images = torch.randn(16, 1, 16, 16, device=gpu)
    quantized = quantize(small_model().to(gpu), images, "rtn")
    with torch.inference_mode():
        found = quantized.model(images)
        monkeypatch.setattr("maqee.quant.terms._triton_is_there", lambda: False)
        monkeypatch.setattr("maqee.quant.layer.all_short", lambda *operands: False)
        monkeypatch.setattr("maqee.quant.attend.all_short", lambda *operands: False)
        expected = quantized.model(images)
    assert torch.equal(found, expected)
