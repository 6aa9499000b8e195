"""Float rows to codes, with the LayerNorm in front of them if there is one.

It is the one kernel that sees whole rows, so it also puts columns into the order in which a layer with two groups of
weights reads them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from maqee.runtime.kernels.passing import Coded
from maqee.runtime.kernels.rounding import round_steps
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.tuning import Config, tuned


@triton.jit
def normalised(y, there, epsilon, INPUTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """A LayerNorm's rows before its factors; y is 0 in columns that are not there, and so is what is returned."""
    mean = tl.sum(y, axis=1) / INPUTS
    y = tl.where(there, y - mean[:, None], 0.0)
    spread = tl.rsqrt(tl.sum(y * y, axis=1) / INPUTS + epsilon)
    return y * spread[:, None]


@triton.jit
def _code_rows(  # type: ignore[no-untyped-def]
    x, gamma, beta, columns, out, sums, rows, inverse, epsilon, low, high, offset,
    INPUTS: tl.constexpr, SPLIT: tl.constexpr, WIDTH: tl.constexpr,
    NORM: tl.constexpr, ORDERED: tl.constexpr, SUMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BLOCK_M
    i = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    if ORDERED:
        source = tl.load(columns + n, mask=n < WIDTH, other=-1)  # which column stands here, -1 for padding
        there = (source >= 0)[None, :]
    else:
        source = n
        there = (n < INPUTS)[None, :]
    inside = (first + i < rows)[:, None]
    start = x + first.to(tl.int64) * INPUTS + (i[:, None] * INPUTS + source[None, :])
    if not ORDERED:
        start = tl.max_contiguous(start, (1, 4))
    y = tl.load(start, mask=inside & there, other=0.0).to(tl.float32)
    if NORM:
        y = normalised(y, there, epsilon, INPUTS)
        y = y * tl.load(gamma + n, mask=n < WIDTH, other=0.0)[None, :]
        y += tl.load(beta + n, mask=n < WIDTH, other=0.0)[None, :]
    else:
        y = y * inverse
    codes = tl.where(there, round_steps(y, low, high) + offset, 0)
    place = out + first.to(tl.int64) * WIDTH + (i[:, None] * WIDTH + n[None, :])
    place = tl.max_contiguous(place, (1, 4))  # as many as a load has: more would have to change threads
    tl.store(place, codes.to(tl.int8), mask=inside & (n < WIDTH)[None, :])
    if SUMS:
        own = (n < SPLIT)[None, :]
        tl.store(sums + first + i, tl.sum(tl.where(own, codes, 0), axis=1), mask=first + i < rows)
        if SPLIT < WIDTH:
            tl.store(sums + rows + first + i, tl.sum(tl.where(own, 0, codes), axis=1), mask=first + i < rows)


class RowCoder:
    """Makes the codes that a layer reads.

    Args:
        weights: the layer.
        norm: in front of it; None where the rows come as they are.
    """

    def __init__(self, weights: StoredWeights, norm: nn.LayerNorm | None = None) -> None:
        self.weights, self.epsilon = weights, 0.0 if norm is None else norm.eps
        self.norm = None if norm is None else (by_column(norm.weight, weights), by_column(norm.bias, weights))

    def __call__(self, x: Tensor) -> Coded:
        """(..., inputs) to codes of all rows."""
        weights, grid = self.weights, self.weights.grid
        flat = x.reshape(-1, weights.inputs).contiguous()
        rows, device = flat.shape[0], flat.device
        out = torch.empty(rows, weights.width, device=device, dtype=torch.int8)
        sums = None
        if weights.rests is not None:
            sums = torch.empty(weights.groups, rows, device=device, dtype=torch.int32)
        gamma, beta = (weights.bias, weights.bias) if self.norm is None else self.norm

        def launch(config: Config) -> None:
            _code_rows[(-(-rows // config.block_m),)](
                flat, gamma, beta, out if weights.columns is None else weights.columns, out,
                out if sums is None else sums, rows, 1 / grid.scale, self.epsilon,
                float(grid.low), float(grid.high), grid.rest,
                INPUTS=weights.inputs, SPLIT=weights.split, WIDTH=weights.width, NORM=self.norm is not None,
                ORDERED=weights.columns is not None, SUMS=sums is not None, BLOCK_M=config.block_m,
                BLOCK_N=config.block_n, num_warps=config.warps,
            )  # fmt: skip

        whole = triton.next_power_of_2(weights.width)
        key = f"rows {weights.inputs} {weights.width} {self.norm is not None} {sums is not None} {flat.dtype}"
        sizes = [(8, 8), (4, 4), (2, 4), (1, 4), (1, 2), (4, 1), (2, 1), (1, 1)]  # of one warp: sums stay within it
        tuned(key, [Config(block, whole, 0, warps, 1, 0) for block, warps in sizes], launch, device, rows)
        return Coded(out, sums)


def by_column(values: Tensor, weights: StoredWeights) -> Tensor:
    """A norm's numbers in steps of a layer's grid, in the order of its codes."""
    steps, columns = values.detach().float() / weights.grid.scale, weights.columns
    return steps if columns is None else torch.where(columns >= 0, steps[columns.clamp(min=0).long()], 0.0)
