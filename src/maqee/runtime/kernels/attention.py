"""Attention on codes, for up to 256 tokens: softmax(q k^T / sqrt(d)) v, with probabilities rounded to their grid.

A program holds the keys and values of one head and goes through its queries. In Swin the tokens of a window take the
place of those of an image: they are read and written where they lie. Codes less their zero points are whole
numbers that float16 holds, and float32 adds up their products without rounding, so that sums are those of integers.

Probabilities on a logarithmic grid need no exponential and no logarithm of their own: a score counted in octaves is,
but for a constant of its row, the exponent already. What a code stands for is a power of two, or one times sqrt(2): the
bits of the first kind and those of the second make two products, as in `maqee.quant.terms`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from maqee.quant.grids import SQRT2, Grid, LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.runtime.kernels.passing import Coded, Target
from maqee.runtime.kernels.rounding import power_of_two, round_steps, saturated, step_bits
from maqee.runtime.kernels.stored import StoredGrid
from maqee.runtime.kernels.tuning import Config, processors, tuned
from maqee.runtime.kernels.windows import Windows

MOST_TOKENS = 256
MOST_WIDTH = 128  # of a head
LOG, UNIFORM, TWIN = 0, 1, 2
LAST_CODE = 60  # powers from here on, below 2^-30 of the first, are lost in float32 sums anyway
HALF_BIAS = 15  # of float16's exponent


# Four bytes to four float16: a byte in the low bits of 1024 makes 1024 + byte.
_BYTES_TO_HALVES = tl.constexpr("""{
    .reg .b32 bytes, middle;
    xor.b32 bytes, $2, 0x80808080;
    mov.b32 middle, 0x64806480;
    prmt.b32 $0, bytes, 0x64646464, 0x4140;
    prmt.b32 $1, bytes, 0x64646464, 0x4342;
    sub.f16x2 $0, $0, middle;
    sub.f16x2 $1, $1, middle;
}""")
# Two whole numbers, in the low bits of floats, to float16 powers of two with half of them as exponents: those of odd
# numbers and those of even ones, 0 where the number is of the other kind.
_POWERS = tl.constexpr("""{
    .reg .b32 both, odd, exponents;
    prmt.b32 both, $2, $3, 0x5410;
    and.b32 odd, both, 0x00010001;
    mul.lo.u32 odd, odd, 0x7C00;
    shl.b32 exponents, both, 9;
    and.b32 $0, exponents, odd;
    xor.b32 odd, odd, 0x7C007C00;
    and.b32 $1, exponents, odd;
}""")


@triton.jit
def _numbers(codes, there, rest, RESTS: tl.constexpr, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stored codes less what is left of the zero point, in float16."""
    stored = tl.load(codes, mask=there, other=0)
    if COMPILED:  # a conversion takes four times as long
        number = tl.inline_asm_elementwise(_BYTES_TO_HALVES, "=r,=r,r", [stored], tl.float16, is_pure=True, pack=4)
    else:
        number = stored.to(tl.float16)
    if RESTS:
        number -= tl.full((1, 1), rest, tl.float16)
    return number


@triton.jit
def _powers(share, levels, low, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """2^(n // 2 - 15) in float16 for n, the step nearest to a share: first where n is odd, then where it is even."""
    steps = step_bits(share, levels, low)
    if COMPILED:  # two numbers at a time
        return tl.inline_asm_elementwise(
            _POWERS, "=r,=r,r,r", [steps], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    exponents = (steps << 9) & 0x7C00
    odd = (steps & 1) != 0
    one = tl.where(odd, exponents, 0).to(tl.int16).to(tl.float16, bitcast=True)
    other = tl.where(odd, 0, exponents).to(tl.int16).to(tl.float16, bitcast=True)
    return one, other


@triton.jit
def _attention(  # type: ignore[no-untyped-def]
    qkv, out, out_sums, places, bias, heads, q_rest, k_rest, v_rest, octaves, p_first, p_second, p_low, p_high,
    step, second_step, low, high, offset,
    KIND: tl.constexpr, TOKENS: tl.constexpr, HEAD: tl.constexpr, QKV_WIDTH: tl.constexpr, OUT_WIDTH: tl.constexpr,
    WINDOWS: tl.constexpr, OWN_BIAS: tl.constexpr,
    CODES: tl.constexpr, OUT_SUMS: tl.constexpr, RESTS: tl.constexpr, COMPILED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    group, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    i, j, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    token = j
    if WINDOWS > 0:  # a group is a window, and places say which of the image's tokens are in it
        window = group % WINDOWS
        first = (group - window) * TOKENS
        places += window * TOKENS
        token = tl.load(places + j, mask=j < TOKENS, other=0)
        bias += ((window if OWN_BIAS else 0) * heads + head) * TOKENS * TOKENS
    else:
        first = group * TOKENS
    start = qkv + first.to(tl.int64) * QKV_WIDTH + head * HEAD
    there = (j < TOKENS)[:, None] & (d < HEAD)[None, :]
    place = token[:, None] * QKV_WIDTH + d[None, :]
    k = _numbers(start + heads * HEAD + place, there, k_rest, RESTS, COMPILED)  # (tokens, d)
    v = _numbers(start + 2 * heads * HEAD + place, there, v_rest, RESTS, COMPILED)
    seen = (j < TOKENS)[None, :]
    block = tl.program_id(1)
    while block * BLOCK_M < TOKENS:
        row = block * BLOCK_M + i
        inside = (row < TOKENS)[:, None] & (d < HEAD)[None, :]
        at = row
        if WINDOWS > 0:
            at = tl.load(places + row, mask=row < TOKENS, other=0)
        q = _numbers(start + (at[:, None] * QKV_WIDTH + d[None, :]), inside, q_rest, RESTS, COMPILED)
        if HEAD < BLOCK_D:  # what k has there must not count
            q = tl.where((d < HEAD)[None, :], q, 0.0)
        scores = tl.where(seen, tl.dot(q, k.T), float("-inf"))  # (queries, TOKENS), whole numbers
        unit = octaves
        if WINDOWS > 0:  # no whole numbers any more, but octaves
            pair = row[:, None] * TOKENS + j[None, :]
            scores = scores * octaves + tl.load(bias + pair, mask=(row < TOKENS)[:, None] & seen, other=0.0)
            unit = 1.0
        top = tl.max(scores, axis=1) * unit
        shares = power_of_two(scores * unit - top[:, None], COMPILED)
        total = tl.sum(shares, axis=1)
        if KIND == 0:  # the code is round(-2 log2(p / scale)), p_first is 2 log2(scale); rounded is p_high - code
            levels = p_high - p_low
            constant = (levels - p_first - 2.0 * (top + tl.log2(total))) / levels
            share = saturated(scores, 2.0 * unit / levels, constant[:, None], COMPILED)
            one, other = _powers(share, levels, p_low, COMPILED)  # p_high is odd: the first are the even codes
            y = tl.dot(one, v) * step + tl.dot(other, v) * second_step
        elif KIND == 1:  # p_first is 1 / scale
            steps = round_steps(shares * (p_first / total)[:, None], p_low, p_high)
            y = tl.dot(tl.where(seen, steps, 0).to(tl.float16), v) * step
        else:  # p_first is the fine step, p_second the coarse one
            p = shares * (1.0 / total)[:, None]
            fine = round_steps(p / p_first, 0.0, p_high).to(tl.float32)
            coarse = round_steps(p / p_second, 0.0, p_high).to(tl.float32)
            nearer = tl.abs(fine * p_first - p) <= tl.abs(coarse * p_second - p)
            y = tl.dot(tl.where(nearer, fine, 0.0).to(tl.float16), v) * step
            y += tl.dot(tl.where(nearer, 0.0, coarse).to(tl.float16), v) * second_step
        to = out + first.to(tl.int64) * OUT_WIDTH + head * HEAD + (at[:, None] * OUT_WIDTH + d[None, :])
        if CODES:
            codes = round_steps(y, low, high) + offset
            tl.store(to, codes.to(tl.int8), mask=inside)
            if OUT_SUMS:
                part = tl.sum(tl.where((d < HEAD)[None, :], codes, 0), axis=1)
                tl.atomic_add(out_sums + first + at, part, mask=row < TOKENS)
        else:
            tl.store(to, y, mask=inside)
        block += tl.num_programs(1)


class Probabilities(NamedTuple):
    """The grid of probabilities as the kernel wants it; see there."""

    kind: int
    first: float
    second: float
    low: float
    high: float
    step: float
    second_step: float

    @classmethod
    def of(cls, grid: Grid) -> Probabilities | None:
        """None where the kernel does not know such a grid."""
        if isinstance(grid, LogSqrt2Grid):
            scale, last = float(grid.scale), min(grid.none, LAST_CODE)  # even; last + 1 - code is what is rounded
            step = scale * 2.0 ** (HALF_BIAS - last // 2)
            return cls(LOG, 2 * math.log2(scale), 0.0, 1.0, float(last + 1), step, step * SQRT2 / 2)
        if isinstance(grid, TwinGrid) and not grid.signed:
            fine, coarse = float(grid.fine), float(grid.coarse)
            return cls(TWIN, fine, coarse, 0.0, float(grid.levels - 1), fine, coarse)
        stored = StoredGrid.of(grid) if isinstance(grid, UniformGrid) else None
        if stored is None or stored.largest > 2048:  # the whole numbers that float16 has
            return None
        return cls(UNIFORM, 1 / stored.scale, 0.0, float(stored.low), float(stored.high), stored.scale, 0.0)


class CodedAttend:
    """Attention that can be called.

    Args:
        operands: grids of q, k and v.
        p: of the probabilities.
        heads: how many.
        head_width: d.
        target: the codes to put out; None is float.
        windows: which tokens see each other, and their bias; None where all of an image do, and without one.
    """

    def __init__(
        self,
        operands: list[StoredGrid],
        p: Probabilities,
        heads: int,
        head_width: int,
        target: Target | None,
        windows: Windows | None = None,
    ) -> None:
        self.operands, self.p, self.heads, self.head_width, self.target = operands, p, heads, head_width, target
        self.windows = windows

    def __call__(self, qkv: Coded, images: int) -> Tensor | Coded:
        """Codes (images * tokens, 3 * heads * d) to mixed values (images * tokens, heads * d) or their codes."""
        (q, k, v), p, target, windows = self.operands, self.p, self.target, self.windows
        rows, device = qkv.codes.shape[0], qkv.codes.device
        tokens, dim = rows // images if windows is None else windows.tokens, self.heads * self.head_width
        programs = rows // tokens * self.heads
        unit, low, high, offset, sums = 1.0, 0.0, 0.0, 0, None
        if target is None:
            out = torch.empty(rows, dim, device=device)
        else:
            (grid,) = target.grids
            unit, low, high, offset = grid.scale, float(grid.low), float(grid.high), grid.rest
            out = torch.empty(rows, target.width, device=device, dtype=torch.int8)
            sums = torch.empty(1, rows, device=device, dtype=torch.int32) if target.sums else None
        octaves = q.scale * k.scale * self.head_width**-0.5 * math.log2(math.e)

        def launch(config: Config) -> None:
            if sums is not None:
                sums.zero_()
            blocks = -(-tokens // config.block_m)
            shared = blocks if programs < 2 * processors(device) else 1  # few heads: share their queries out
            _attention[(programs, shared)](
                qkv.codes, out, out if sums is None else sums, *((out, out) if windows is None else windows),
                self.heads, float(q.rest), float(k.rest), float(v.rest), octaves, p.first, p.second, p.low, p.high,
                p.step * v.scale / unit, p.second_step * v.scale / unit, low, high, offset,
                KIND=p.kind, TOKENS=tokens, HEAD=self.head_width, QKV_WIDTH=qkv.codes.shape[1], OUT_WIDTH=out.shape[1],
                WINDOWS=0 if windows is None else windows.number,
                OWN_BIAS=windows is not None and len(windows.bias) > 1,
                CODES=target is not None, OUT_SUMS=sums is not None, RESTS=any(grid.rest for grid in self.operands),
                COMPILED=device.type != "cpu", BLOCK_M=config.block_m,
                BLOCK_N=max(16, triton.next_power_of_2(tokens)),
                BLOCK_D=max(16, triton.next_power_of_2(self.head_width)),
                num_warps=config.warps, num_stages=config.stages, maxnreg=config.registers,
            )  # fmt: skip

        key = f"attention {p.kind} {self.heads} {self.head_width} {tokens} {target is None} {sums is None}"
        key = key if windows is None else f"{key} in {windows.number} windows"
        sizes = [(64, 4, 2), (64, 4, 3), (64, 8, 2), (128, 8, 1), (32, 4, 3), (16, 4, 4)]
        tuned(key, [Config(block, 0, 0, warps, 1, most) for block, warps, most in sizes], launch, device, images)
        return out if target is None else Coded(out, sums)
