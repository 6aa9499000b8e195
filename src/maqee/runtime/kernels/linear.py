"""A linear layer on codes: int8 products, int32 sums; scales, bias and what follows in the same kernel.

What follows is one of: nothing (float); the stream is added to; positions are added to patches, which go to their
places among the tokens; codes of the next operand; GELU and codes. A grid of programs stays on the GPU and takes tile
after tile, so that one program's ending overlaps with another one's products.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from maqee.runtime.kernels.passing import Affine, Coded, Places, Target
from maqee.runtime.kernels.rounding import (
    FLOAT_BITS,
    nearest_step,
    normal_share,
    saturated,
    start_of_sums,
    store_rounded,
    sums_to_float,
)
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.tuning import Config, processors, tuned


@triton.jit
def _products(left, weights, acc, first_m, first_n, FIRST: tl.constexpr, LAST: tl.constexpr, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums of products of the columns FIRST to LAST, added to `acc`."""
    for k in range(FIRST, LAST, BLOCK_K):
        acc = tl.dot(left.load([first_m, k]), weights.load([first_n, k]).T, acc, out_dtype=tl.int32)
    return acc


@triton.jit
def _halves(x, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """The left and the right half of a tile (M, N)."""
    return tl.split(tl.permute(tl.reshape(x, (M, 2, N // 2)), (0, 2, 1)))


@triton.jit
def _two_in_one(sums, M: tl.constexpr, N: tl.constexpr, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums of 16 bits (M, N), two neighbours in one register: (M, N // 2)."""
    even, odd = tl.split(tl.reshape(sums, (M, N // 2, 2)))
    both = (even & 0xFFFF) | (odd << 16)
    if COMPILED:  # or else the compiler sees through this and keeps both
        both = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [both], dtype=tl.int32, is_pure=False, pack=1)
    return both


@triton.jit
def _two_from_one(both, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums again, as `sums_to_float` wants small ones."""
    return tl.reshape(tl.join((both << 16) >> 16, both >> 16), (M, N)) + FLOAT_BITS


@triton.jit
def _linear(  # type: ignore[no-untyped-def]
    left, weights, out, stream, scale, bias, correction, rests, sums, low, levels, offset, out_sums, factor, summand,
    rows, outputs, out_width, step, log_step, zero_share,
    SPLIT: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, GRIDS: tl.constexpr, SHARE: tl.constexpr,
    SMALL: tl.constexpr, SHORT: tl.constexpr, CORRECTED: tl.constexpr, RESTS: tl.constexpr,
    GELU: tl.constexpr, AFFINE: tl.constexpr, CODES: tl.constexpr, STREAM: tl.constexpr, OUT_SUMS: tl.constexpr,
    OFFSETS: tl.constexpr, PATCHES: tl.constexpr, TOKENS: tl.constexpr, FRONT: tl.constexpr, COMPILED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(outputs, BLOCK_N)
    tiles = tl.cdiv(rows, BLOCK_M) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT):
        first_m = (tile // tiles_n) * BLOCK_M
        first_n = (tile % tiles_n) * BLOCK_N
        m = first_m + tl.arange(0, BLOCK_M)
        n = first_n + tl.arange(0, BLOCK_N)
        if SPLIT < WIDTH:  # the second group first: it is the smaller one, and waits for the other
            other = n + PADDED  # its row of every table
            acc = start_of_sums(correction + other, BLOCK_M, BLOCK_N, CORRECTED, SMALL)
            acc = _products(left, weights, acc, first_m, first_n, SPLIT, WIDTH, BLOCK_K)
            if RESTS:
                acc -= tl.load(sums + rows + m, mask=m < rows, other=0)[:, None] * tl.load(rests + other)[None, :]
            waiting = _two_in_one(acc, BLOCK_M, BLOCK_N, COMPILED) if SHORT else acc
        acc = start_of_sums(correction + n, BLOCK_M, BLOCK_N, CORRECTED, SMALL)
        acc = _products(left, weights, acc, first_m, first_n, 0, SPLIT, BLOCK_K)
        if RESTS:
            acc -= tl.load(sums + m, mask=m < rows, other=0)[:, None] * tl.load(rests + n)[None, :]
        y, factors, summands = sums_to_float(acc, SMALL), tl.load(scale + n)[None, :], tl.load(bias + n)[None, :]
        if SPLIT < WIDTH:
            acc = _two_from_one(waiting, BLOCK_M, BLOCK_N) if SHORT else waiting
            y = y * factors + sums_to_float(acc, SMALL) * tl.load(scale + other)[None, :]
            factors = tl.full((1, 1), 1.0, tl.float32)
        if CODES:
            if GELU:
                y = y * factors + summands
                shares = normal_share(y, step, log_step, COMPILED)
                if AFFINE:
                    y = saturated(y * shares, tl.load(factor + n)[None, :], tl.load(summand + n)[None, :], COMPILED)
                else:
                    y = saturated(y, shares, zero_share, COMPILED)
            else:
                y = saturated(y, factors, summands, COMPILED)
            if GRIDS == 1 or SHARE % BLOCK_N == 0:  # a tile lies within one grid
                grid = first_n // SHARE
            else:
                grid = tl.minimum(n // SHARE, GRIDS - 1)[None, :]
            codes = nearest_step(y, tl.load(levels + grid), tl.load(low + grid))
            if OFFSETS:
                codes += tl.load(offset + grid)
            out.store([first_m, first_n], codes.to(tl.int8))
            if OUT_SUMS:
                tl.atomic_add(out_sums + m, tl.sum(tl.where(n[None, :] < outputs, codes, 0), axis=1), mask=m < rows)
        else:
            y = y * factors + summands
            half: tl.constexpr = BLOCK_N // 2
            if PATCHES:  # rows go behind an image's special tokens, each with its position
                token = FRONT + m % PATCHES
                start = token[:, None] * out_width + first_n + tl.arange(0, half)[None, :]
                place = start + (m // PATCHES).to(tl.int64)[:, None] * (TOKENS * out_width)
            else:
                start = first_m.to(tl.int64) * out_width + first_n
                start += tl.arange(0, BLOCK_M)[:, None] * out_width + tl.arange(0, half)[None, :]
                place = start
            column = first_n + tl.arange(0, half)
            parts = _halves(y, BLOCK_M, BLOCK_N)  # one after the other: both with the stream do not fit into registers
            for side in tl.static_range(2):
                inside = (m < rows)[:, None] & (column + side * half < outputs)[None, :]
                part = parts[side]
                if STREAM:
                    part += tl.load(stream + (start + side * half), mask=inside, other=0.0).to(tl.float32)
                store_rounded(out + (place + side * half), part, inside, COMPILED)


class Linear:
    """A prepared layer that can be called.

    Args:
        weights: the layer.
        target: the codes to put out; None is float.
        gelu: whether GELU comes before the codes.
        affine: what comes between GELU and codes.
    """

    def __init__(
        self,
        weights: StoredWeights,
        target: Target | None = None,
        gelu: bool = False,
        affine: Affine | None = None,
    ) -> None:
        self.weights, self.target, self.gelu, self.affine = weights, target, gelu, None
        self.step, self.zero_share = 1.0, 0.0  # what GELU is counted in, where 0 then lies
        grids = target.grids if target is not None else [weights.grid]  # without codes, the tables are not read
        if target is not None and affine is not None:
            self.affine = affine.as_share_of(grids[0]).padded(weights.bias.shape[0])
        elif target is not None and gelu:
            self.step, self.zero_share = grids[0].scale * grids[0].top, grids[0].zero / grids[0].top
        elif target is not None:
            self.weights = weights.as_shares_of(grids)
        like = weights.bias
        self.offsets = any(grid.rest for grid in grids)
        self.tables = (
            like.new_tensor([grid.low for grid in grids]),
            like.new_tensor([grid.top for grid in grids]),
            torch.tensor([grid.rest for grid in grids], device=like.device, dtype=torch.int32),
        )

    def __call__(self, coded: Coded, stream: Tensor | None = None) -> Tensor | Coded:
        """Codes of rows to float (rows, outputs), to the stream plus that (in the stream's type), or to codes."""
        rows, like = coded.codes.shape[0], coded.codes
        if self.target is None:
            dtype = torch.float32 if stream is None else stream.dtype
            out = like.new_empty(rows, self.weights.outputs, dtype=dtype)
            self._run(coded, out, None, stream, "float" if stream is None else "stream")
            return out
        codes = like.new_empty(rows, self.target.width)
        sums = like.new_empty(1, rows, dtype=torch.int32) if self.target.sums else None
        self._run(coded, codes, sums, None, "codes")
        return Coded(codes, sums)

    def place(self, coded: Coded, places: Places, tokens: Tensor) -> None:
        """Codes of all patches to their places among the tokens (images, tokens, dim), with their positions added."""
        self._run(coded, tokens, None, places.table, "places", places)

    def _run(
        self,
        coded: Coded,
        out: Tensor,
        sums: Tensor | None,
        added: Tensor | None,
        ending: str,
        places: Places | None = None,
    ) -> None:
        """Fill `out`, and `sums` where there are any; `added` is the stream, or a table of positions."""
        weights, target = self.weights, self.target
        rows, device = coded.codes.shape[0], coded.codes.device
        low, levels, offset = self.tables
        # What is None is not read; the kernel still wants an address.
        tables = (
            weights.correction,
            weights.rests,
            coded.sums,
            low,
            levels,
            offset,
            sums,
            *(self.affine or (None, None)),
        )

        def launch(config: Config) -> None:
            if sums is not None:
                sums.zero_()
            tiles = -(-rows // config.block_m) * -(-weights.outputs // config.block_n)
            _linear[(min(tiles, processors(device) * config.programs),)](
                TensorDescriptor.from_tensor(coded.codes, [config.block_m, config.block_k]),
                TensorDescriptor.from_tensor(weights.codes, [config.block_n, config.block_k]),
                out if target is None else _tiles(out, weights.outputs, config), out if added is None else added,
                weights.scale, weights.bias, *(offset if table is None else table for table in tables), rows,
                weights.outputs, out.shape[-1], self.step, math.log2(self.step), self.zero_share,
                SPLIT=weights.split, WIDTH=weights.width, PADDED=weights.bias.shape[0], GRIDS=len(low),
                SHARE=weights.outputs // len(low), SMALL=weights.small, SHORT=weights.short,
                CORRECTED=weights.corrected, RESTS=weights.rests is not None, GELU=self.gelu,
                AFFINE=self.affine is not None, CODES=target is not None, STREAM=added is not None,
                OUT_SUMS=sums is not None, OFFSETS=self.offsets,
                PATCHES=places.patches if places else 0, TOKENS=len(places.table) if places else 0,
                FRONT=places.front if places else 0, COMPILED=device.type != "cpu",
                BLOCK_M=config.block_m, BLOCK_N=config.block_n, BLOCK_K=config.block_k, FLAT=config.flat,
                num_warps=config.warps, num_stages=config.stages, maxnreg=config.registers,
            )  # fmt: skip

        kind = f"half {ending}" if out.dtype == torch.float16 else ending
        tuned(self._key(kind), candidates(weights), launch, device, rows)

    def _key(self, ending: str) -> str:
        """What the best tile depends on; the rows are added by whoever measures."""
        weights = self.weights
        parts = "linear", weights.outputs, weights.split, weights.width, ending, self.gelu, self.affine is not None
        return " ".join(map(str, (*parts, weights.small, weights.short, weights.rests is not None)))


def _tiles(out: Tensor, outputs: int, config: Config) -> Any:
    """Codes of the outputs, without the padding of their rows, for whole tiles to be written to."""
    return TensorDescriptor(out, [out.shape[0], outputs], [out.shape[1], 1], [config.block_m, config.block_n])


def candidates(weights: StoredWeights) -> list[Config]:
    """Tiles to choose from. Two groups keep two sums, so that each thread must hold less of them.

    Triton lets a product of bytes end before it begins the next (it keeps two on their way where sums are float32), so
    that it is for other programs of a multiprocessor to fill the gaps: there are tiles for two, three and four.
    """
    if weights.groups == 1:
        long = 128 if weights.width % 128 == 0 else 64
        wide = [Config(128, 256, long, warps=8, stages=3, programs=1)] if weights.bias.shape[0] % 256 == 0 else []
        return [
            Config(128, 128, long, warps=4, stages=3, programs=2),
            Config(128, 128, long, warps=4, stages=3, programs=2, flat=True),
            Config(128, 128, 64, warps=4, stages=4, programs=2),
            Config(128, 128, 64, warps=4, stages=4, programs=2, flat=True),
            Config(128, 128, long, warps=8, stages=3, programs=2),
            Config(128, 128, long, warps=8, stages=3, programs=2, flat=True),
            *wide,
            Config(64, 128, 64, warps=4, stages=3, programs=4),  # where endings, not products, take the time
            Config(64, 128, 64, warps=4, stages=3, programs=4, flat=True),
            Config(64, 128, 64, warps=4, stages=4, programs=3, flat=True),
            Config(32, 64, long, warps=4, stages=4, programs=4),
        ]
    return [
        Config(128, 128, 64, warps=8, stages=4, programs=2),
        Config(128, 128, 64, warps=4, stages=4, programs=2),
        Config(128, 128, 64, warps=8, stages=4, programs=1),
        Config(128, 64, 64, warps=4, stages=4, programs=3),
        Config(128, 64, 64, warps=4, stages=4, programs=2),
        Config(64, 128, 64, warps=4, stages=4, programs=3),
        Config(32, 64, 64, warps=4, stages=4, programs=4),
    ]
