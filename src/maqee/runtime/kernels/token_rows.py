"""Some tokens of every image, read once and where they lie: normalised, made into codes, added up.

A head reads the patches without the tokens in front of them, or every second or third of them. A slice would be a copy,
a norm of its own another pass, and the mean of what a head adds to its features a third.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.models import TokenShape
from maqee.runtime.kernels.passing import Coded
from maqee.runtime.kernels.rounding import round_steps
from maqee.runtime.kernels.rows import by_column, normalised
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.tuning import Config, tuned

EACH = 16  # tokens of a part, whatever the tile: how sums are rounded must not depend on what was fastest


@triton.jit
def _read_tokens(  # type: ignore[no-untyped-def]
    x, gamma, beta, columns, out, sums, totals, rows, inverse, epsilon, low, high, offset,
    TOKENS: tl.constexpr, FRONT: tl.constexpr, COUNT: tl.constexpr, ACROSS: tl.constexpr, DOWN: tl.constexpr,
    STEP: tl.constexpr, INPUTS: tl.constexpr, SPLIT: tl.constexpr, WIDTH: tl.constexpr, NORM: tl.constexpr,
    ORDERED: tl.constexpr, CODES: tl.constexpr, SUMS: tl.constexpr, TOTALS: tl.constexpr, PARTS: tl.constexpr,
    PART: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    image, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    i = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    if ORDERED:
        source = tl.load(columns + n, mask=n < WIDTH, other=-1)  # which column stands here, -1 for padding
        there = source >= 0
    else:
        source = n
        there = n < INPUTS
    if NORM and CODES:
        factors = tl.load(gamma + n, mask=n < WIDTH, other=0.0)[None, :]
        summands = tl.load(beta + n, mask=n < WIDTH, other=0.0)[None, :]
    start = x + image.to(tl.int64) * (TOKENS * INPUTS)
    to = out + image.to(tl.int64) * (COUNT * WIDTH)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, PART, BLOCK_M):
        j = part * PART + first + i  # which one of those that are read
        token = FRONT + (j // ACROSS) * DOWN + (j % ACROSS) * STEP
        here = (first + i < PART) & (j < COUNT)
        inside = here[:, None]
        place = start + (token[:, None] * INPUTS + source[None, :])
        if not ORDERED:
            place = tl.max_contiguous(place, (1, 4))
        y = tl.load(place, mask=inside & there[None, :], other=0.0).to(tl.float32)
        if NORM:
            y = normalised(y, there[None, :], epsilon, INPUTS)
        if TOTALS:
            total += y  # 0 for tokens that are not there
        if CODES:
            steps = y * factors + summands if NORM else y * inverse
            codes = tl.where(there[None, :], round_steps(steps, low, high) + offset, 0)
            place = tl.max_contiguous(to + (j[:, None] * WIDTH + n[None, :]), (1, 4))
            tl.store(place, codes.to(tl.int8), mask=inside & (n < WIDTH)[None, :])
            if SUMS:
                own = (n < SPLIT)[None, :]
                row = sums + image * COUNT + j
                tl.store(row, tl.sum(tl.where(own, codes, 0), axis=1), mask=here)
                if SPLIT < WIDTH:
                    tl.store(row + rows, tl.sum(tl.where(own, 0, codes), axis=1), mask=here)
    if TOTALS:
        tl.store(totals + tl.program_id(0).to(tl.int64) * INPUTS + source, tl.sum(total, axis=0), mask=there)


class Reading(NamedTuple):
    """What comes of reading tokens.

    Attributes:
        coded: codes of the tokens that were read, image by image; None without a layer.
        totals: (images, parts, dim) sums of these tokens, in front of a norm's factors; None unless asked for.
    """

    coded: Coded | None
    totals: Tensor | None


class Picked(NamedTuple):
    """Which tokens of an image are read: all from one on, or some of a grid.

    Attributes:
        front: the first one.
        number: how many; None for all behind it.
        across: how many side by side; None for all of them.
        down: tokens from the beginning of a row to that of the next one that is read.
        step: tokens from one to the next of a row.
        tokens: how many an image must have; None for any number.
    """

    front: int
    number: int | None = None
    across: int | None = None
    down: int = 0
    step: int = 1
    tokens: int | None = None

    @classmethod
    def from_grid(cls, shape: TokenShape, stride: int = 1) -> Picked:
        """Every `stride`-th patch in both directions, as `maqee.exits.lgvit.pick` has it."""
        rows, columns = (-(-side // stride) for side in shape.grid)
        return cls(shape.prefix_tokens, rows * columns, columns, stride * shape.grid[1], stride, shape.tokens)

    def among(self, tokens: int) -> int:
        """How many are read of an image with so many tokens."""
        if self.tokens not in (None, tokens):
            raise MaqeeError(
                f"A head of this model reads images of {self.tokens} tokens, and got {tokens}: resize the images."
            )
        return tokens - self.front if self.number is None else self.number


class TokenReader:
    """Reads some tokens of every image, in float32 or float16.

    Args:
        picked: which ones.
        norm: of each of them; None where they are taken as they are.
        weights: the layer that they are made into codes for; None for no codes.
        adds_up: whether their sums are wanted.
    """

    def __init__(self, picked: Picked, norm: nn.LayerNorm | None, weights: StoredWeights | None, adds_up: bool) -> None:
        self.picked, self.weights, self.adds_up = picked, weights, adds_up
        self.normed, self.epsilon = norm is not None, 0.0 if norm is None else norm.eps
        self.tables: tuple[Tensor, Tensor] | None = None
        if norm is not None and weights is not None:
            self.tables = by_column(norm.weight, weights), by_column(norm.bias, weights)

    def __call__(self, x: Tensor) -> Reading:
        """x: (images, tokens, dim)."""
        x, weights = x.contiguous(), self.weights
        (images, tokens, dim), device = x.shape, x.device
        count = self.picked.among(tokens)
        rows, parts = images * count, -(-count // EACH)
        totals = torch.empty(images, parts, dim, device=device) if self.adds_up else None
        coded, columns, inverse, low, high, offset, split, width = None, None, 1.0, 0.0, 0.0, 0, dim, dim
        if weights is not None:
            sums = None
            if weights.rests is not None:
                sums = torch.empty(weights.groups, rows, device=device, dtype=torch.int32)
            coded = Coded(torch.empty(rows, weights.width, device=device, dtype=torch.int8), sums)
            grid, columns, split, width = weights.grid, weights.columns, weights.split, weights.width
            inverse, low, high, offset = 1 / grid.scale, float(grid.low), float(grid.high), grid.rest
        # What is None is not read or written; the kernel still wants an address.
        gamma, beta = self.tables or (x, x)
        places = (columns, *(coded or (None, None)), totals)

        def launch(config: Config) -> None:
            _read_tokens[(images * parts,)](
                x, gamma, beta, *(x if place is None else place for place in places), rows, inverse, self.epsilon,
                low, high, offset,
                TOKENS=tokens, FRONT=self.picked.front, COUNT=count, ACROSS=self.picked.across or count,
                DOWN=self.picked.down, STEP=self.picked.step, INPUTS=dim, SPLIT=split, WIDTH=width,
                NORM=self.normed, ORDERED=columns is not None, CODES=coded is not None,
                SUMS=coded is not None and coded.sums is not None, TOTALS=totals is not None,
                PARTS=parts, PART=EACH, BLOCK_M=config.block_m, BLOCK_N=config.block_n, num_warps=config.warps,
            )  # fmt: skip

        # Not by the type of tokens: how sums are rounded depends on the tile, and must not on the type.
        wanted = weights is not None, weights is not None and weights.rests is not None, self.adds_up
        key = " ".join(map(str, ("tokens", tokens, count, dim, width, self.normed, *wanted)))
        whole = triton.next_power_of_2(width)
        sizes = [(4, 4), (2, 4), (1, 4), (2, 2), (1, 2), (4, 1), (2, 1), (1, 1)]
        tuned(key, [Config(block, whole, 0, warps, 1, 0) for block, warps in sizes], launch, device, rows)
        return Reading(coded, totals)
