"""A depthwise 3x3 convolution over tokens on codes, with GELU, a batch norm and the next layer's codes behind it.

A program goes down some columns of an image. Each row of codes is read and made into numbers once, and counts for the
row above it, its own and the one below. Codes are put out, or only their sums, where nobody asks for more.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from maqee.quant.coded import WeightState
from maqee.runtime.kernels.passing import Affine, Coded, Target
from maqee.runtime.kernels.rounding import nearest_step, normal_share, saturated
from maqee.runtime.kernels.stored import StoredGrid
from maqee.runtime.kernels.tuning import Config, tuned

WIDEST = 4  # columns of a strip: more find no room in registers

# Four bytes to four float32: a byte in the low bits of 2^23 makes 2^23 + byte.
_BYTES_TO_FLOATS = tl.constexpr("""{
    .reg .b32 bytes, part;
    xor.b32 bytes, $4, 0x80808080;
    prmt.b32 part, bytes, 0x4B000000, 0x7440;
    sub.rn.f32 $0, part, 0f4B000080;
    prmt.b32 part, bytes, 0x4B000000, 0x7441;
    sub.rn.f32 $1, part, 0f4B000080;
    prmt.b32 part, bytes, 0x4B000000, 0x7442;
    sub.rn.f32 $2, part, 0f4B000080;
    prmt.b32 part, bytes, 0x4B000000, 0x7443;
    sub.rn.f32 $3, part, 0f4B000080;
}""")


@triton.jit
def _numbers(  # type: ignore[no-untyped-def]
    codes, row, column, n, rest,
    DOWN: tl.constexpr, RIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, RESTS: tl.constexpr,
    COMPILED: tl.constexpr,
):  # fmt: skip
    """Some channels of some columns of an image's row, as whole numbers in float32.

    Beyond the edge is the number 0, whatever its code.
    """
    there = ((row < DOWN) & (column >= 0) & (column < RIGHT))[:, None] & (n < CHANNELS)[None, :]
    place = codes + ((row * RIGHT + column)[:, None] * WIDTH + n[None, :])
    code = tl.load(tl.max_contiguous(place, (1, 4)), mask=there, other=0)
    if COMPILED:  # a conversion takes longer
        number = tl.inline_asm_elementwise(
            _BYTES_TO_FLOATS, "=f,=f,=f,=f,r", [code], dtype=tl.float32, is_pure=True, pack=4
        )
    else:
        number = code.to(tl.float32)
    return tl.where(there, number - rest, 0.0) if RESTS else number


@triton.jit
def _depthwise(  # type: ignore[no-untyped-def]
    codes, weights, scale, bias, factor, summand, out, out_sums, rest, low, levels, offset,
    DOWN: tl.constexpr, RIGHT: tl.constexpr, CHANNELS: tl.constexpr, IN_WIDTH: tl.constexpr, OUT_WIDTH: tl.constexpr,
    RESTS: tl.constexpr, POOL: tl.constexpr, OUT_SUMS: tl.constexpr, COMPILED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    strips: tl.constexpr = RIGHT // BLOCK_M
    image = (tl.program_id(0) // strips).to(tl.int64)
    column = tl.program_id(0) % strips * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = n < CHANNELS
    scales = tl.load(scale + n, mask=channel, other=0.0)[None, :]
    biases = tl.load(bias + n, mask=channel, other=0.0)[None, :]
    factors = tl.load(factor + n, mask=channel, other=0.0)[None, :]
    summands = tl.load(summand + n, mask=channel, other=0.0)[None, :]
    # The weights of a row above, at and below the one that is computed; left, middle and right.
    a0 = tl.load(weights + n, mask=channel, other=0.0)[None, :]
    a1 = tl.load(weights + (CHANNELS + n), mask=channel, other=0.0)[None, :]
    a2 = tl.load(weights + (2 * CHANNELS + n), mask=channel, other=0.0)[None, :]
    b0 = tl.load(weights + (3 * CHANNELS + n), mask=channel, other=0.0)[None, :]
    b1 = tl.load(weights + (4 * CHANNELS + n), mask=channel, other=0.0)[None, :]
    b2 = tl.load(weights + (5 * CHANNELS + n), mask=channel, other=0.0)[None, :]
    c0 = tl.load(weights + (6 * CHANNELS + n), mask=channel, other=0.0)[None, :]
    c1 = tl.load(weights + (7 * CHANNELS + n), mask=channel, other=0.0)[None, :]
    c2 = tl.load(weights + (8 * CHANNELS + n), mask=channel, other=0.0)[None, :]
    start = codes + image * (DOWN * RIGHT * IN_WIDTH)
    to = out + image * (DOWN * RIGHT * OUT_WIDTH)
    before = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)  # sums of the row above, as far as they are known
    here = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)  # and of the row itself
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for row in range(0, DOWN + 1):
        x = _numbers(start, row, column - 1, n, rest, DOWN, RIGHT, IN_WIDTH, CHANNELS, RESTS, COMPILED)
        y = _numbers(start, row, column, n, rest, DOWN, RIGHT, IN_WIDTH, CHANNELS, RESTS, COMPILED)
        z = _numbers(start, row, column + 1, n, rest, DOWN, RIGHT, IN_WIDTH, CHANNELS, RESTS, COMPILED)
        sums = before + x * c0 + y * c1 + z * c2
        before = here + x * b0 + y * b1 + z * b2
        here = x * a0 + y * a1 + z * a2
        if row > 0:  # the row above has all of its sums
            y = sums * scales + biases
            share = saturated(y * normal_share(y, 1.0, 0.0, COMPILED), factors, summands, COMPILED)
            result = nearest_step(share, levels, low)
            if POOL:
                total += result
            else:
                result += offset
                token = (row - 1) * RIGHT + column
                tl.store(to + (token[:, None] * OUT_WIDTH + n[None, :]), result.to(tl.int8), mask=channel[None, :])
                if OUT_SUMS:
                    place = out_sums + image * (DOWN * RIGHT) + token
                    tl.atomic_add(place, tl.sum(tl.where(channel[None, :], result, 0), axis=1))
    if POOL:
        total += DOWN * offset
        tl.store(out + tl.program_id(0).to(tl.int64) * CHANNELS + n, tl.sum(total, axis=0), mask=channel)


class Depthwise:
    """Such a convolution, prepared.

    Args:
        state: its weights, a group of nine for each channel.
        grid: of its input.
        shape: rows and columns of the tokens.
        affine: the batch norm behind the GELU.
        target: the codes to put out.
    """

    def __init__(
        self, state: WeightState, grid: StoredGrid, shape: tuple[int, int], affine: Affine, target: Target
    ) -> None:
        self.grid, self.shape, self.target = grid, shape, target
        whole = state.codes.to(torch.int32) - state.zero  # (channels, 9), zero points taken off
        self.weights = whole.t().float().contiguous()  # sums of products are below 2^24, and exact
        self.scale = state.scale[:, 0] * grid.scale
        self.bias = torch.zeros_like(self.scale) if state.bias is None else state.bias
        self.affine = affine.as_share_of(target.grids[0])

    def __call__(self, coded: Coded) -> Coded:
        """Codes of all tokens (images * tokens, width) to codes of as many."""
        target, rows = self.target, coded.codes.shape[0]
        out = coded.codes.new_empty(rows, target.width)
        sums = coded.codes.new_empty(1, rows, dtype=torch.int32) if target.sums else None
        self._run(coded.codes, out, sums, pool=False)
        return Coded(out, sums)

    def pooled(self, coded: Coded) -> Tensor:
        """The same added up: (images * strips, channels) sums of codes, each over some columns of an image."""
        strips = len(coded.codes) // (self.shape[0] * self.strip)
        out = coded.codes.new_empty(strips, self.weights.shape[1], dtype=torch.int32)
        self._run(coded.codes, out, None, pool=True)
        return out

    @property
    def strip(self) -> int:
        """Columns of an image that a program goes down: they divide all of them, so that none is computed in vain."""
        columns = self.shape[1]
        return min(columns & -columns, WIDEST)

    def _run(self, codes: Tensor, out: Tensor, sums: Tensor | None, pool: bool) -> None:
        (grid,), (down, right), device = self.target.grids, self.shape, codes.device
        rows, channels = codes.shape[0], self.weights.shape[1]

        def launch(config: Config) -> None:
            if sums is not None:
                sums.zero_()
            _depthwise[(rows // (down * config.block_m), -(-channels // config.block_n))](
                codes, self.weights, self.scale, self.bias, self.affine.factor, self.affine.summand, out,
                out if sums is None else sums, float(self.grid.rest), float(grid.low), float(grid.top), grid.rest,
                DOWN=down, RIGHT=right, CHANNELS=channels, IN_WIDTH=codes.shape[1], OUT_WIDTH=out.shape[1],
                RESTS=self.grid.rest != 0, POOL=pool, OUT_SUMS=sums is not None, COMPILED=device.type != "cpu",
                BLOCK_M=config.block_m, BLOCK_N=config.block_n, num_warps=config.warps,
            )  # fmt: skip

        key = f"depthwise {down} {right} {channels} {codes.shape[1]} {out.shape[1]} {sums is not None} {pool}"
        sizes = [(128, 1), (64, 1), (128, 2), (256, 2)]
        tuned(key, [Config(self.strip, wide, 0, warps, 1, 0) for wide, warps in sizes], launch, device, rows)
