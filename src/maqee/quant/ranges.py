"""Where a grid should begin and end, from the numbers it has to hold.

Everything here works on rows: (rows, n) numbers give one grid a row. A whole tensor is one row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.quant.grids import Grid, LogSqrt2Grid, UniformGrid, check_bits, grid_from_range
from maqee.quant.squared_errors import CPU_TILE, GPU_TILE, log_errors, uniform_errors

REPQ_QUANTILES = (0.999, 0.9999, 0.99999)
ERQ_WEIGHT_QUANTILES = (0.97, 0.98, 0.99, 0.995, 0.9995, 0.9997, 0.9999, 0.99995, 0.99999, 1.0)


def check_finite(x: Tensor, name: str) -> Tensor:
    """Numbers that can be quantized; else an error that names the tensor."""
    if not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).sum())
        raise MaqeeError(f"{name} holds {bad} values that are not finite, so no grid fits: check model and data.")
    return x


def minmax(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest number of each row: (rows, 1) each."""
    return rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)


def quantile_range(rows: Tensor, quantiles: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Quantiles 1 - p and p of each row for each p: (len(quantiles), rows, 1) each.

    The same numbers as torch.quantile, its arithmetic on ranks in the input's precision included, but from the few
    outermost numbers instead of a sort of all, and for any size.
    """
    last = rows.shape[1] - 1
    outer = min(last + 1, math.ceil((1 - min(quantiles)) * last) + 2)
    bottom = rows.topk(outer, dim=1, largest=False).values  # ascending
    top = rows.topk(outer, dim=1).values.flip(1)  # ascending; its last column has rank `last`
    lows = [_interpolated(bottom, _rank(1 - p, last, rows.dtype), 0) for p in quantiles]
    highs = [_interpolated(top, _rank(p, last, rows.dtype), last + 1 - outer) for p in quantiles]
    return torch.stack(lows)[..., None], torch.stack(highs)[..., None]


@cache
def _rank(p: float, last: int, dtype: torch.dtype) -> float:
    """Place of a quantile among sorted numbers, rounded as the numbers themselves are."""
    return float(torch.tensor(p, dtype=dtype) * last)


def _interpolated(columns: Tensor, rank: float, first: int) -> Tensor:
    """The number at a fractional rank; `columns` are sorted and begin at rank `first`."""
    below = min(max(int(rank) - first, 0), columns.shape[1] - 1)
    above = min(below + 1, columns.shape[1] - 1)
    return torch.lerp(columns[:, below], columns[:, above], rank - int(rank))


def minmax_grid(rows: Tensor, bits: int) -> UniformGrid:
    """The whole range: nothing is clipped."""
    return grid_from_range(*minmax(rows), bits)


def quantile_grid(rows: Tensor, bits: int, quantiles: Sequence[float] = REPQ_QUANTILES) -> UniformGrid:
    """The pair of quantiles whose grid has the least mean squared error, for each row on its own."""
    return quantile_grids(rows, (bits,), quantiles)[0]


def quantile_grids(
    rows: Tensor, widths: Sequence[int], quantiles: Sequence[float] = REPQ_QUANTILES
) -> list[UniformGrid]:
    """The same for several widths; the quantiles are looked for once."""
    lows, highs = quantile_range(rows, quantiles)
    found = []
    for bits in widths:
        every = grid_from_range(lows, highs, bits)  # (quantiles, rows, 1)
        best = uniform_errors(rows, every).argmin(dim=0)[None, :, None]
        found.append(UniformGrid(bits, every.scale.gather(0, best)[0], every.zero.gather(0, best)[0]))
    return found


def log_sqrt2_grid(rows: Tensor, bits: int, quantiles: Sequence[float] = REPQ_QUANTILES) -> LogSqrt2Grid:
    """The upper quantile whose logarithmic grid has the least mean squared error."""
    return log_sqrt2_grids(rows, (bits,), quantiles)[0]


def log_sqrt2_grids(
    rows: Tensor, widths: Sequence[int], quantiles: Sequence[float] = REPQ_QUANTILES
) -> list[LogSqrt2Grid]:
    """The same for several widths; quantiles and logarithms are made once."""
    for bits in widths:
        check_bits(bits)
    _, highs = quantile_range(rows, quantiles)
    scale = highs.clamp(min=torch.finfo(rows.dtype).tiny)  # (quantiles, rows, 1)
    best = log_errors(rows, scale, widths).argmin(dim=1)  # (widths, rows)
    chosen = [scale.gather(0, row[None, :, None])[0] for row in best]
    return [LogSqrt2Grid(bits, one) for bits, one in zip(widths, chosen, strict=True)]


def mean_error(grid: Grid, rows: Tensor, chunk: int | None = None) -> Tensor:
    """Mean squared error of each row, a piece of the row at a time so that the work stays in the cache."""
    chunk = chunk or (CPU_TILE if rows.device.type == "cpu" else GPU_TILE)
    width = max(1, chunk // rows.shape[0])
    total = torch.zeros(rows.shape[0], dtype=torch.float64, device=rows.device)
    for piece in rows.split(width, dim=1):
        total += (grid(piece) - piece).square().sum(dim=1, dtype=torch.float64)
    return total / rows.shape[1]
