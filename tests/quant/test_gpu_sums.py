"""Sums in one pass are those of PyTorch, to the bit. In Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.quant.terms import Term, multiply_terms

pytest.importorskip("triton", reason="Triton is not installed on this machine")
from maqee.quant.gpu_sums import MOST_PARTS, can_be_summed, scaled_sum

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@given(
    count=st.integers(1, MOST_PARTS),
    shape=st.sampled_from([(1, 1), (5, 7), (2, 3, 400), (2, 2, 9, 64)]),
    by_column=st.booleans(),
    with_bias=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=30)
def test_the_numbers_of_pytorch(
    count: int, shape: tuple[int, ...], by_column: bool, with_bias: bool, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    columns = shape[-1]
    parts = [torch.randint(-4000, 4000, shape, generator=draw).float() for _ in range(count)]
    steps = [torch.rand((columns,) if by_column else (), generator=draw) for _ in range(count)]
    bias = torch.randn(columns, generator=draw) if with_bias else None
    expected = parts[0] * steps[0]
    for part, step in zip(parts[1:], steps[1:], strict=True):
        expected = expected + part * step
    expected = expected if bias is None else expected + bias
    moved = None if bias is None else bias.to(DEVICE)
    found = scaled_sum([part.to(DEVICE) for part in parts], [step.to(DEVICE) for step in steps], moved)
    assert torch.equal(found.cpu(), expected)


def test_what_the_kernel_does_not_know() -> None:
    part, step = torch.zeros(4, 6), torch.ones(6)
    assert can_be_summed([part] * MOST_PARTS, [step] * MOST_PARTS)
    assert not can_be_summed([part] * (MOST_PARTS + 1), [step] * (MOST_PARTS + 1))
    assert not can_be_summed([part.double()], [step])
    assert not can_be_summed([part.t()], [torch.ones(4)])
    assert not can_be_summed([part, part], [step, step[0]])
    assert not can_be_summed([part], [torch.ones(4)])
    assert not can_be_summed([part[:0]], [step])


def test_products_of_terms_by_hand() -> None:
    """(2 * 3 * 0.5) * (4 * 0.25) and so on: every pair of terms once, the bias at the end."""
    left = [Term(torch.tensor([[2.0]]), torch.tensor(0.5)), Term(torch.tensor([[1.0]]), torch.tensor(3.0))]
    right = [Term(torch.tensor([[4.0, 8.0]]), torch.tensor([0.25, 0.5]))]

    def product(one: Tensor, other: Tensor) -> Tensor:
        return one @ other

    # 2 x 4 x 0.5 x 0.25 + 1 x 4 x 3 x 0.25 = 1 + 3; 2 x 8 x 0.5 x 0.5 + 1 x 8 x 3 x 0.5 = 4 + 12
    assert multiply_terms(left, right, product).tolist() == [[4.0, 16.0]]
    assert multiply_terms(left, right, product, torch.tensor([1.0, -1.0])).tolist() == [[5.0, 15.0]]
    one, other = ([Term(term.codes.to(DEVICE), term.step.to(DEVICE)) for term in side] for side in (left, right))
    assert multiply_terms(one, other, product, torch.tensor([1.0, -1.0], device=DEVICE)).tolist() == [[5.0, 15.0]]
