"""Sums of products of codes times their steps on a GPU, in one pass over the memory.

`maqee.quant.terms` says what comes out, to the bit: every product and every sum is rounded, none is contracted. PyTorch
takes a pass for each of them, and broadcasts the steps of channels slowly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_PARTS = 4  # two terms of a logarithmic grid, or two groups of weights, on each side
MOST_NUMBERS = 2**30  # places are counted in 32 bits
_BLOCK = 1024


@triton.jit
def _scaled_sum(  # type: ignore[no-untyped-def]
    out, one, two, three, four, step1, step2, step3, step4, bias, count, columns,
    PARTS: tl.constexpr, BY_COLUMN: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One * step1 + two * step2 + ... + bias; steps are single numbers, or one for each column."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    column = i % columns
    place = column if BY_COLUMN else column * 0
    total = tl.load(one + i, mask=inside) * tl.load(step1 + place, mask=inside)
    if PARTS > 1:
        total += tl.load(two + i, mask=inside) * tl.load(step2 + place, mask=inside)
    if PARTS > 2:
        total += tl.load(three + i, mask=inside) * tl.load(step3 + place, mask=inside)
    if PARTS > 3:
        total += tl.load(four + i, mask=inside) * tl.load(step4 + place, mask=inside)
    if BIAS:
        total += tl.load(bias + column, mask=inside)
    tl.store(out + i, total, mask=inside)


def scaled_sum(parts: Sequence[Tensor], steps: Sequence[Tensor], bias: Tensor | None) -> Tensor:
    """The sum of all parts (..., columns) times their steps, () or (columns,), plus a bias (columns,) if there is one.

    The result takes the memory of the first part.
    """
    out, columns = parts[0], parts[0].shape[-1]
    by_column = steps[0].numel() > 1
    more = [out] * (MOST_PARTS - len(parts))
    factors = [*steps, *[steps[0]] * len(more)]
    with torch.cuda.device_of(out):
        _scaled_sum[(triton.cdiv(out.numel(), _BLOCK),)](
            out, *parts, *more, *factors, out if bias is None else bias, out.numel(), columns,
            PARTS=len(parts), BY_COLUMN=by_column, BIAS=bias is not None, BLOCK=_BLOCK, enable_fp_fusion=False,
        )  # fmt: skip
    return out


def can_be_summed(parts: Sequence[Tensor], steps: Sequence[Tensor]) -> bool:
    """Whether the kernel knows how: few parts of float32 without gaps, and steps that are all of one kind."""
    first = parts[0]
    return (
        len(parts) <= MOST_PARTS
        and 0 < first.numel() <= MOST_NUMBERS
        and all(part.dtype == torch.float32 and part.is_contiguous() for part in parts)
        and len({step.numel() for step in steps}) == 1
        and steps[0].numel() in (1, first.shape[-1])
    )
