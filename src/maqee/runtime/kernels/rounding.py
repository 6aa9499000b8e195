"""Steps that several kernels share: sums to numbers, numbers to codes, GELU. Each says what it must equal."""

from __future__ import annotations

import triton
import triton.language as tl

# 1.5 * 2^23 and its bits: a number below 2^22 that is added is rounded to a whole one, and stands in the low bits.
_MAGIC = tl.constexpr(12582912.0)
_BITS = tl.constexpr(0x4B400000)


@triton.jit
def round_steps(x, low, high):  # type: ignore[no-untyped-def]
    """torch.round(x).clamp(low, high), as int32, for whole bounds below 2^22.

    The addition rounds to even as torch.round does; a conversion would take four times as long.
    """
    bounded = tl.minimum(tl.maximum(x, low), high)
    return (bounded + _MAGIC).to(tl.int32, bitcast=True) - _BITS


@triton.jit
def sums_to_float(sums, correction, CORRECTED: tl.constexpr, SMALL: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums (rows, columns) as float32, corrected by one whole number a column where they are CORRECTED.

    SMALL sums are below 2^22: their bits, set into a float, are the number; a conversion would take longer.
    """
    if CORRECTED:
        sums += tl.load(correction)[None, :]
    if SMALL:
        return (sums + _BITS).to(tl.float32, bitcast=True) - _MAGIC
    return sums.to(tl.float32)


@triton.jit
def gelu(x):  # type: ignore[no-untyped-def]
    """The number x times the normal distribution's Phi(x), to 2e-6.

    Phi is 1 / (1 + 2^-g), with x P(x^2) for g. The polynomial P is the least-maximum fit of log2(Phi(x) / Phi(-x)) / x,
    weighted by what it does to the result; beyond 5.5 nothing is left to add.
    """
    z = tl.minimum(tl.maximum(x, -5.5), 5.5)
    s = z * z
    p = 5.209689568630438e-09 * s - 3.8503614518958784e-07
    p = p * s + 1.14522999865585e-05
    p = p * s - 0.0001593885535839945
    p = p * s - 9.559558384353295e-05
    p = p * s + 0.10483858734369278
    p = p * s + 2.3022072315216064
    root = tl.rsqrt(1.0 + tl.exp2(-z * p))  # squared, it takes fewer instructions than a division
    return x * root * root
