"""A depthwise 3x3 convolution over tokens on codes, with GELU, a batch norm and the next layer's codes behind it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from maqee.quant.coded import WeightState
from maqee.runtime.kernels.passing import Affine, Coded, Target
from maqee.runtime.kernels.rounding import nearest_step, normal_share, saturated
from maqee.runtime.kernels.stored import StoredGrid
from maqee.runtime.kernels.tuning import Config, tuned


@triton.jit
def _depthwise(  # type: ignore[no-untyped-def]
    codes, weights, scale, bias, factor, summand, out, out_sums, rows, rest, low, levels, offset,
    DOWN: tl.constexpr, RIGHT: tl.constexpr, CHANNELS: tl.constexpr, IN_WIDTH: tl.constexpr, OUT_WIDTH: tl.constexpr,
    OUT_SUMS: tl.constexpr, COMPILED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = n < CHANNELS
    down = (m // RIGHT) % DOWN
    right = m % RIGHT
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for tap in tl.static_range(9):
        a, b = tap // 3 - 1, tap % 3 - 1
        there = (m < rows) & (down + a >= 0) & (down + a < DOWN) & (right + b >= 0) & (right + b < RIGHT)
        inside = there[:, None] & channel[None, :]
        place = (m + a * RIGHT + b).to(tl.int64)[:, None] * IN_WIDTH + n[None, :]
        code = tl.load(codes + place, mask=inside, other=0).to(tl.int32)
        number = tl.where(inside, code - rest, 0)  # beyond the edge is the number 0, whatever its code
        acc += number * tl.load(weights + tap * CHANNELS + n, mask=channel, other=0)[None, :]
    y = acc.to(tl.float32) * tl.load(scale + n, mask=channel, other=0.0)[None, :]
    y += tl.load(bias + n, mask=channel, other=0.0)[None, :]
    factors = tl.load(factor + n, mask=channel, other=0.0)[None, :]
    summands = tl.load(summand + n, mask=channel, other=0.0)[None, :]
    share = saturated(y * normal_share(y, 1.0, 0.0, COMPILED), factors, summands, COMPILED)
    result = nearest_step(share, levels, low) + offset
    inside = (m < rows)[:, None] & channel[None, :]
    tl.store(out + m.to(tl.int64)[:, None] * OUT_WIDTH + n[None, :], result.to(tl.int8), mask=inside)
    if OUT_SUMS:
        tl.atomic_add(out_sums + m, tl.sum(tl.where(inside, result, 0), axis=1), mask=m < rows)


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
        self.weights = whole.t().contiguous()
        self.scale = state.scale[:, 0] * grid.scale
        self.bias = torch.zeros_like(self.scale) if state.bias is None else state.bias
        self.affine = affine.as_share_of(target.grids[0])

    def __call__(self, coded: Coded) -> Coded:
        """Codes of all tokens (images * tokens, width) to codes of as many."""
        target, rows, device = self.target, coded.codes.shape[0], coded.codes.device
        (grid,) = target.grids
        down, right = self.shape
        channels = self.weights.shape[1]
        out = torch.empty(rows, target.width, device=device, dtype=torch.int8)
        sums = torch.empty(1, rows, device=device, dtype=torch.int32) if target.sums else None

        def launch(config: Config) -> None:
            if sums is not None:
                sums.zero_()
            _depthwise[(-(-rows // config.block_m), -(-channels // config.block_n))](
                coded.codes, self.weights, self.scale, self.bias, self.affine.factor, self.affine.summand, out,
                out if sums is None else sums, rows, self.grid.rest, float(grid.low), float(grid.top), grid.rest,
                DOWN=down, RIGHT=right, CHANNELS=channels, IN_WIDTH=coded.codes.shape[1], OUT_WIDTH=target.width,
                OUT_SUMS=sums is not None, COMPILED=device.type != "cpu", BLOCK_M=config.block_m,
                BLOCK_N=config.block_n, num_warps=config.warps,
            )  # fmt: skip

        key = f"depthwise {down} {right} {channels} {coded.codes.shape[1]} {target.width} {target.sums}"
        sizes = [(32, 128, 4), (16, 128, 4), (8, 256, 4), (64, 64, 4), (32, 128, 8)]
        tuned(key, [Config(tall, wide, 0, warps, 1, 1) for tall, wide, warps in sizes], launch, device, rows)
        return Coded(out, sums)
