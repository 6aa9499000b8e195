"""What kernels must equal, in plain PyTorch on the same stored codes. For tests: it is slow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.runtime.kernels.stored import StoredGrid, StoredWeights


def state_rows(x: Tensor, weights: StoredWeights, norm: nn.LayerNorm | None = None) -> Tensor:
    """Float rows (rows, inputs) to the stored codes (rows, width) that a layer reads, 0 in padding."""
    grid = weights.grid
    y = x if norm is None else F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    stored = state_codes(y, grid)
    if weights.columns is None:
        return stored
    columns = weights.columns.long().to(x.device)
    return torch.where(columns >= 0, stored[:, columns.clamp(min=0)], 0)


def state_codes(y: Tensor, grid: StoredGrid) -> Tensor:
    """Numbers to stored codes, int64."""
    return (torch.round(y / grid.scale) + grid.zero).clamp(0, grid.top).to(torch.int64) - grid.shift


def state_sums(codes: Tensor, weights: StoredWeights) -> list[Tensor]:
    """For each group of columns, (rows, outputs) sums of (code - zero) (weight code - zero), int64."""
    parts = []
    for number, here in enumerate((slice(0, weights.split), slice(weights.split, None))[: weights.groups]):
        left, right = codes[:, here].to(torch.int64), weights.codes[:, here].to(torch.int64)
        sums = left @ right.t()
        if weights.correction is not None:
            sums = sums + weights.correction[number].to(torch.int64)
        if weights.rests is not None:
            sums = sums - left.sum(dim=1, keepdim=True) * weights.rests[number].to(torch.int64)
        parts.append(sums[:, : weights.outputs])
    return parts


def state_linear(codes: Tensor, weights: StoredWeights) -> Tensor:
    """The layer's output (rows, outputs)."""
    parts = state_sums(codes, weights)
    y = sum(part.float() * scale[: weights.outputs] for part, scale in zip(parts, weights.scale, strict=True))
    assert isinstance(y, Tensor)
    return y + weights.bias[: weights.outputs]
