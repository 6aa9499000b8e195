"""Images to the codes of their patches: pixels are read once, where they lie, and leave patch by patch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from maqee.runtime.kernels.passing import Coded
from maqee.runtime.kernels.rounding import round_steps
from maqee.runtime.kernels.stored import StoredWeights
from maqee.runtime.kernels.tuning import Config, tuned


@triton.jit
def _code_patches(  # type: ignore[no-untyped-def]
    images, columns, out, sums, rows, inverse, low, high, offset,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, ACROSS: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    RUN: tl.constexpr, SPLIT: tl.constexpr, WIDTH: tl.constexpr, ORDERED: tl.constexpr, SUMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # patches
    n = tl.arange(0, BLOCK_N)  # pixels of a patch: channel by channel, row by row
    if ORDERED:
        source = tl.load(columns + n, mask=n < WIDTH, other=-1)  # which pixel stands here, -1 for padding
    else:
        source = n
    there = (source >= 0) & (source < CHANNELS * DOWN * RIGHT)
    each: tl.constexpr = DOWN * RIGHT
    line: tl.constexpr = ACROSS * RIGHT  # pixels of a row of the image
    pixel = (source // each) * (HEIGHT * line) + (source % each // RIGHT) * line + source % RIGHT
    if not ORDERED:  # the compiler does not see that pixels side by side may be read together
        pixel = tl.max_contiguous(tl.multiple_of(pixel, RUN), RUN)
    patches: tl.constexpr = HEIGHT // DOWN * ACROSS
    image, patch = m // patches, m % patches
    corner = image.to(tl.int64) * (CHANNELS * HEIGHT * line) + (patch // ACROSS) * (DOWN * line)
    corner += (patch % ACROSS) * RIGHT
    inside = (m < rows)[:, None]
    y = tl.load(images + corner[:, None] + pixel[None, :], mask=inside & there[None, :], other=0.0).to(tl.float32)
    codes = tl.where(there[None, :], round_steps(y * inverse, low, high) + offset, 0)
    place = out + m.to(tl.int64)[:, None] * WIDTH + n[None, :]
    place = tl.max_contiguous(place, (1, 128 // images.dtype.element_ty.primitive_bitwidth))
    tl.store(place, codes.to(tl.int8), mask=inside & (n < WIDTH)[None, :])
    if SUMS:
        own = (n < SPLIT)[None, :]
        tl.store(sums + m, tl.sum(tl.where(own, codes, 0), axis=1), mask=m < rows)
        if SPLIT < WIDTH:
            tl.store(sums + rows + m, tl.sum(tl.where(own, 0, codes), axis=1), mask=m < rows)


class PatchCoder:
    """Makes the codes that a patch embedding reads.

    Args:
        weights: the layer.
        size: of a patch, down and to the right.
    """

    def __init__(self, weights: StoredWeights, size: tuple[int, int]) -> None:
        self.weights, self.size = weights, size

    def __call__(self, images: Tensor) -> Coded:
        """(batch, channels, height, width) to codes of all patches, image by image, row by row."""
        weights, grid = self.weights, self.weights.grid
        images = images.contiguous()
        (count, channels, height, width), (down, right), device = images.shape, self.size, images.device
        rows = count * (height // down) * (width // right)
        out = torch.empty(rows, weights.width, device=device, dtype=torch.int8)
        sums = None
        if weights.rests is not None:
            sums = torch.empty(weights.groups, rows, device=device, dtype=torch.int32)

        def launch(config: Config) -> None:
            _code_patches[(-(-rows // config.block_m),)](
                images, out if weights.columns is None else weights.columns, out, out if sums is None else sums, rows,
                1 / grid.scale, float(grid.low), float(grid.high), grid.rest,
                CHANNELS=channels, HEIGHT=height, ACROSS=width // right, DOWN=down, RIGHT=right,
                RUN=right & -right, SPLIT=weights.split, WIDTH=weights.width, ORDERED=weights.columns is not None,
                SUMS=sums is not None, BLOCK_M=config.block_m, BLOCK_N=config.block_n, num_warps=config.warps,
            )  # fmt: skip

        whole = triton.next_power_of_2(weights.width)
        key = f"patches {channels} {down} {right} {width} {weights.width} {sums is not None} {images.dtype}"
        sizes = [(4, 4), (2, 4), (1, 4), (2, 2), (1, 2), (4, 1), (2, 1), (1, 1)]
        tuned(key, [Config(block, whole, 0, warps, 1, 0) for block, warps in sizes], launch, device, rows)
        return Coded(out, sums)
