"""Squared errors of many candidate grids on the same numbers.

Numbers are taken a tile at a time, and all candidates see a tile while it is in the cache; intermediate results are
written over each other. An accelerator, where the number of steps is what costs, takes several candidates at once. What
a candidate's error comes to does not depend on which others are looked at with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from maqee.quant.grids import UniformGrid

CPU_TILE = 1 << 16
GPU_TILE = 1 << 26


def uniform_errors(rows: Tensor, grids: UniformGrid) -> Tensor:
    """Summed squared error of each row (rows, n) on each of several grids with whole zero points.

    Args:
        rows: (rows, n).
        grids: scale and zero are (candidates, rows, 1).

    Returns:
        (candidates, rows), double.
    """
    candidates, count, _ = grids.scale.shape
    totals = torch.zeros(candidates, count, dtype=torch.float64, device=rows.device)
    for block, tile in _tiles(rows):
        at_once = _at_once(candidates, tile)
        room = tile.new_empty(2, at_once, *tile.shape)
        for first in range(0, candidates, at_once):
            some = slice(first, min(first + at_once, candidates))
            scale, zero = grids.scale[some, block], grids.zero[some, block]
            steps, error = room[:, : len(scale)]  # (candidates, rows, n) each
            torch.div(tile, scale, out=steps)
            torch.round(steps, out=error)
            torch.maximum(error, -zero, out=error)  # clamp does the same with tensors as bounds, several times slower
            torch.minimum(error, grids.top - zero, out=error)
            error.sub_(steps).mul_(error)  # in steps
            totals[some, block] += error.sum(dim=-1, dtype=torch.float64) * scale[..., 0].double().square()
    return totals


def log_errors(rows: Tensor, scales: Tensor, widths: Sequence[int]) -> Tensor:
    """Summed squared error of each row on the logarithmic grids of several widths: (widths, candidates, rows), double.

    Grids with the same scale share all powers that both have, so the widths only differ in what becomes 0.

    Args:
        rows: (rows, n), from 0 to 1.
        scales: (candidates, rows, 1).
        widths: bits.
    """
    candidates, count, _ = scales.shape
    totals = torch.zeros(len(widths), candidates, count, dtype=torch.float64, device=rows.device)
    for block, tile in _tiles(rows):
        power, error = torch.empty_like(tile), torch.empty_like(tile)
        lost = tile.square()
        for number in range(candidates):
            scale = scales[number, block]
            torch.div(tile, scale, out=power)
            power.log2_().mul_(-2).round_().clamp_(min=0)  # of 0 it is infinite
            torch.mul(power, -0.5, out=error)
            error.exp2_().mul_(scale).sub_(tile).square_()
            for index, bits in enumerate(widths):
                kept = torch.where(power >= 2**bits, lost, error)
                totals[index, number, block] += kept.sum(dim=1, dtype=torch.float64)
    return totals


def _tiles(rows: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Pieces of some rows, with the rows they are from; whole rows as long as they are short."""
    size = CPU_TILE if rows.device.type == "cpu" else GPU_TILE
    count, length = rows.shape
    height, width = max(1, size // length), min(length, size)
    for first in range(0, count, height):
        block = slice(first, min(first + height, count))
        for piece in rows[block].split(width, dim=1):
            yield block, piece


def _at_once(candidates: int, tile: Tensor) -> int:
    """How many candidates see a tile together."""
    return 1 if tile.device.type == "cpu" else min(candidates, max(1, GPU_TILE // tile.numel()))
