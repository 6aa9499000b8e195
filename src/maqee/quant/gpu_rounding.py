"""Numbers to whole numbers on a GPU, in one pass over the memory.

`maqee.quant.terms` says what comes out. In PyTorch a uniform grid takes five passes and a logarithmic one eighteen, and
on a GPU passes over memory are most of what a simulated network costs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_MAGIC = tl.constexpr(12582912.0)  # 1.5 * 2^23: what is added to it is rounded to a whole number, half to even
_FAR = tl.constexpr(1048576.0)  # 2^20: beyond it no code is, and nothing is rounded
_BLOCK = 1024


@triton.jit
def _rounded(x):  # type: ignore[no-untyped-def]
    """torch.round(x), for what is not far from 0; what is far, or infinite, is brought to +-2^20."""
    near = tl.minimum(tl.maximum(x, -_FAR, tl.PropagateNan.ALL), _FAR, tl.PropagateNan.ALL)
    return (near + _MAGIC) - _MAGIC


@triton.jit
def _uniform(x, out, scale, zero, top, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The clamped codes of a uniform grid, less its zero point."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    offset = tl.load(zero)
    code = _rounded(tl.div_rn(tl.load(x + i, mask=inside, other=0.0), tl.load(scale))) + offset
    code = tl.minimum(tl.maximum(code, 0.0, tl.PropagateNan.ALL), top, tl.PropagateNan.ALL)
    tl.store(out + i, code - offset, mask=inside)


@triton.jit
def _powers(x, even, odd, scale, first, last, shifts, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Powers of two for the codes first .. last of a log-sqrt2 grid: even ones in one term, odd ones in the other."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    exponent = -2.0 * tl.log2(tl.div_rn(tl.load(x + i, mask=inside, other=1.0), tl.load(scale)))
    code = tl.maximum(_rounded(exponent), 0.0).to(tl.int32)
    here = (code >= first) & (code <= last)
    shift = tl.where(here, (code - first + 1) >> 1, 0)  # half the exponent, rounded up
    power = tl.where(here, 1 << (shifts - shift), 0).to(tl.float32)
    parity = code & 1
    tl.store(even + i, tl.where(parity == 0, power, 0.0), mask=inside)
    tl.store(odd + i, tl.where(parity == 1, power, 0.0), mask=inside)


def uniform_offsets(x: Tensor, scale: Tensor, zero: Tensor, top: int) -> Tensor:
    """(clamp(round(x / scale) + zero, 0, top) - zero), with one scale and one zero point for all."""
    x, out = _dense(x)
    with torch.cuda.device_of(x):
        _uniform[_programs(x)](x, out, scale, zero, float(top), x.numel(), BLOCK=_BLOCK)
    return out


def even_and_odd_powers(x: Tensor, scale: Tensor, first: int, last: int, shifts: int) -> tuple[Tensor, Tensor]:
    """2^(shifts - ceil((code - first) / 2)) where the code of x on a log-sqrt2 grid is first .. last, else 0."""
    x, even = _dense(x)
    odd = torch.empty_like(even)
    with torch.cuda.device_of(x):
        _powers[_programs(x)](x, even, odd, scale, first, last, shifts, x.numel(), BLOCK=_BLOCK)
    return even, odd


def _dense(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers without gaps between them, in whatever order of dimensions, and memory for results in the same order."""
    out = torch.empty_like(x)
    return (x if x.stride() == out.stride() else torch.empty_like(x).copy_(x)), out


def _programs(x: Tensor) -> tuple[int]:
    return (triton.cdiv(x.numel(), _BLOCK),)
