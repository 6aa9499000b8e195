"""What is left of an image for its classifier: the mean of its tokens, its special tokens, the mean of its codes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from maqee.runtime.kernels.passing import Affine
from maqee.runtime.kernels.rows import normalised
from maqee.runtime.kernels.stored import StoredGrid
from maqee.runtime.kernels.tuning import Config, tuned


@triton.jit
def _gather(  # type: ignore[no-untyped-def]
    x, gamma, beta, totals, factor, summand, codes, out, mean, epsilon, share, taken,
    TOKENS: tl.constexpr, DIM: tl.constexpr, SPECIAL: tl.constexpr, NORM: tl.constexpr, BESIDE: tl.constexpr,
    PARTS: tl.constexpr, ROWS: tl.constexpr, CODE_WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)[None, :]
    there = n < DIM
    pooled = tl.load(summand + n, mask=there, other=0.0)  # (1, DIM)
    if PARTS:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for first in range(0, PARTS, BLOCK_M):
            row = (first + i)[:, None]
            place = totals + image * (PARTS * DIM) + (row * DIM + n)
            total += tl.load(place, mask=(row < PARTS) & there, other=0.0)
        pooled += tl.sum(total, axis=0)[None, :] * share * tl.load(factor + n, mask=there, other=0.0)
    slots: tl.constexpr = SPECIAL + 1 if BESIDE else SPECIAL
    to = out + image * (slots * DIM) + n
    for slot in tl.static_range(SPECIAL):
        token = tl.max_contiguous(x + image * (TOKENS * DIM) + (slot * DIM + n), (1, 4))  # in halves, too: see the key
        y = tl.load(token, mask=there, other=0.0).to(tl.float32)
        if NORM:
            y = normalised(y, there, epsilon, DIM) * tl.load(gamma + n, mask=there, other=0.0)
            y += tl.load(beta + n, mask=there, other=0.0)
        tl.store(to + slot * DIM, y if BESIDE else y + pooled, mask=there)
    if BESIDE:
        tl.store(to + SPECIAL * DIM, pooled, mask=there)
    if ROWS:
        whole = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
        for first in range(0, ROWS, BLOCK_M):
            row = (first + i)[:, None]
            place = codes + image * (ROWS * CODE_WIDTH) + (row * CODE_WIDTH + n)
            whole += tl.load(place, mask=(row < ROWS) & there, other=0).to(tl.int32)
        number = (tl.sum(whole, axis=0)[None, :] - taken).to(tl.float32) * share
        for slot in tl.static_range(SPECIAL):
            tl.store(mean + image * (SPECIAL * DIM) + (slot * DIM + n), number, mask=there)


class Gathered(NamedTuple):
    """What is left of images.

    Attributes:
        tokens: (images, special, dim), with one more where the mean stands beside the special ones.
        numbers: (images * special, dim), the mean of what codes stand for in steps of their grid, once for each special
            token; None without codes.
    """

    tokens: Tensor
    numbers: Tensor | None


class Gatherer:
    """Makes what a classifier reads, from what the kernels before it have added up.

    Args:
        norm: of special tokens; None where they are taken as they are.
        special: how many of them are read.
        pooled: a factor for the mean of all tokens, and what is added to it.
        beside: whether the mean stands behind the special tokens; else it is added to each of them.
        grid: of the codes whose mean is wanted, too; None without codes.
    """

    def __init__(
        self, norm: nn.LayerNorm | None, special: int, pooled: Affine, beside: bool, grid: StoredGrid | None = None
    ) -> None:
        self.special, self.pooled, self.beside, self.grid = special, pooled, beside, grid
        self.norm = None if norm is None else (norm.weight.detach(), norm.bias.detach(), norm.eps)

    def __call__(self, x: Tensor, totals: Tensor | None, codes: Tensor | None, count: int) -> Gathered:
        """Gather what the kernels before have left.

        Args:
            x: (images, tokens, dim), for the special ones.
            totals: (images, parts, dim) sums of tokens; None where their mean is 0.
            codes: (images * rows, width), codes of tokens or sums of some; None without.
            count: tokens of an image in these sums.

        """
        x = x.contiguous()
        (images, tokens, dim), device = x.shape, x.device
        out = torch.empty(images, self.special + self.beside, dim, device=device)
        rows, width, rest = 0, 1, 0
        if codes is not None and self.grid is not None:
            rows, width, rest = codes.shape[0] // images, codes.shape[1], self.grid.rest
        mean = torch.empty(images * self.special, dim, device=device) if rows else None
        gamma, beta, epsilon = self.norm or (x, x, 0.0)
        parts = 0 if totals is None else totals.shape[1]

        def launch(config: Config) -> None:
            _gather[(images,)](
                x, gamma, beta, x if totals is None else totals, *self.pooled, x if codes is None else codes, out,
                out if mean is None else mean, epsilon, 1 / count, count * rest,
                TOKENS=tokens, DIM=dim, SPECIAL=self.special, NORM=self.norm is not None, BESIDE=self.beside,
                PARTS=parts, ROWS=rows, CODE_WIDTH=width, BLOCK_M=config.block_m, BLOCK_N=config.block_n,
                num_warps=config.warps,
            )  # fmt: skip

        # Not by the type of tokens: how a norm is rounded must not depend on it.
        key = f"gather {dim} {self.special} {parts} {rows} {width} {None if codes is None else codes.dtype}"
        whole = triton.next_power_of_2(dim)
        sizes = [(16, 4), (16, 8), (32, 8), (8, 4)]
        tuned(key, [Config(block, whole, 0, warps, 1, 0) for block, warps in sizes], launch, device, images)
        return Gathered(out, mean)
