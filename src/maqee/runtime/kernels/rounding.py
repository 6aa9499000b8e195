"""Steps that several kernels share: sums to numbers, numbers to codes, GELU. Each says what it must equal."""

from __future__ import annotations

import triton
import triton.language as tl

# 1.5 * 2^23 and its bits: a number below 2^22 that is added is rounded to a whole one, and stands in the low bits.
_MAGIC = tl.constexpr(12582912.0)
FLOAT_BITS = tl.constexpr(0x4B400000)
_TO_HALVES = tl.constexpr("cvt.rn.satfinite.f16x2.f32 $0, $2, $1;")


@triton.jit
def round_steps(x, low, high):  # type: ignore[no-untyped-def]
    """torch.round(x).clamp(low, high), as int32, for whole bounds below 2^22.

    The addition rounds to even as torch.round does; a conversion would take four times as long.
    """
    bounded = tl.minimum(tl.maximum(x, low), high)
    return (bounded + _MAGIC).to(tl.int32, bitcast=True) - FLOAT_BITS


@triton.jit
def store_rounded(place, x, inside, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store float32 numbers, rounded once to the type at that place. float16 ends at 65504: what is beyond stays there.

    Two numbers at a time, which takes no longer than a conversion that makes infinities.
    """
    if place.dtype.element_ty == tl.float16:
        if COMPILED:
            x = tl.inline_asm_elementwise(_TO_HALVES, "=r,r,r", [x], dtype=tl.float16, is_pure=True, pack=2)
        else:
            x = tl.minimum(tl.maximum(x, -65504.0), 65504.0)
    tl.store(place, x.to(place.dtype.element_ty), mask=inside)


@triton.jit
def start_of_sums(correction, M: tl.constexpr, N: tl.constexpr, CORRECTED: tl.constexpr, SMALL: tl.constexpr):  # type: ignore[no-untyped-def]
    """What the sums (M, N) of a tile begin with, so that nothing needs to be added to them at the end."""
    start = tl.full((M, N), FLOAT_BITS if SMALL else 0, tl.int32)
    if CORRECTED:
        start += tl.load(correction)[None, :]
    return start


@triton.jit
def sums_to_float(sums, SMALL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums that began so, as float32.

    SMALL sums are below 2^22: their bits, set into a float, are the number; a conversion would take longer.
    """
    if SMALL:
        return sums.to(tl.float32, bitcast=True) - _MAGIC
    return sums.to(tl.float32)


@triton.jit
def power_of_two(x, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """2^x to 2^-22 of it, 0 below the smallest normal number: one instruction, where tl.exp2 takes four."""
    if COMPILED:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return tl.exp2(x)


@triton.jit
def reciprocal(x, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """1 / x to 2^-23 of it, 0 for infinity: one instruction."""
    if COMPILED:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return 1.0 / x


@triton.jit
def saturated(x, factor, summand, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The number x * factor + summand, but not below 0 nor above 1: one instruction."""
    if COMPILED:
        return tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", [x, factor, summand], tl.float32, is_pure=True, pack=1
        )
    return tl.minimum(tl.maximum(x * factor + summand, 0.0), 1.0)


@triton.jit
def step_bits(share, levels, low):  # type: ignore[no-untyped-def]
    """An int32 whose low bits are those of torch.round(low + share * levels), the step that is nearest to a share."""
    return (share * levels + (_MAGIC + low)).to(tl.int32, bitcast=True)


@triton.jit
def nearest_step(share, levels, low):  # type: ignore[no-untyped-def]
    """That step itself."""
    return step_bits(share, levels, low) - FLOAT_BITS


@triton.jit
def normal_share(x, step, log_step, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The normal distribution's Phi(x), by a step; x times that is GELU in steps, to 2e-6. log_step is log2(step).

    Phi is 1 / (1 + 2^-g), with x P(x^2) for g. The polynomial P is the least-maximum fit of log2(Phi(x) / Phi(-x)) / x,
    weighted by what it does to GELU. It is above 2 everywhere: far from 0, where it was not fitted, Phi is 0 or 1 as it
    should be. 1 / (step + 2^(log_step - g)) is the same, and takes fewer instructions.
    """
    s = x * x
    p = 5.209689568630438e-09 * s - 3.8503614518958784e-07
    p = p * s + 1.14522999865585e-05
    p = p * s - 0.0001593885535839945
    p = p * s - 9.559558384353295e-05
    p = p * s + 0.10483858734369278
    p = p * s + 2.3022072315216064
    return reciprocal(step + power_of_two(log_step - x * p, COMPILED), COMPILED)
