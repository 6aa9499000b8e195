"""What passes between kernels: codes with what their reader needs to know, and which codes a reader wants."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.runtime.kernels.stored import StoredGrid, StoredWeights

ALIGNED = 16  # bytes; rows of codes begin at multiples of it, as copies of whole tiles demand
HALF_LARGEST = 65504.0


def in_half(x: Tensor) -> Tensor:
    """Numbers in float16; what is beyond its largest number becomes that, as in every kernel."""
    return x if x.dtype == torch.float16 else x.clamp(-HALF_LARGEST, HALF_LARGEST).half()


class Coded(NamedTuple):
    """Codes on their way between kernels.

    Attributes:
        codes: (rows, width) int8; what is in padded columns does not matter.
        sums: (groups, rows) sums of each row's codes; None where nobody asked for them.
    """

    codes: Tensor
    sums: Tensor | None


class Target(NamedTuple):
    """Which codes a kernel is to put out.

    Attributes:
        grids: each for an equal share of the outputs.
        width: how long rows are; more than the outputs where the reader wants padding.
        sums: whether the reader wants sums of rows.
    """

    grids: list[StoredGrid]
    width: int
    sums: bool

    @classmethod
    def plain(cls, grids: list[StoredGrid], outputs: int) -> Target:
        """Codes for a reader that wants neither padding nor sums."""
        return cls(grids, -(-outputs // ALIGNED) * ALIGNED, sums=False)

    @classmethod
    def input_of(cls, weights: StoredWeights) -> Target:
        """The codes that a layer reads."""
        return cls([weights.grid], weights.width, weights.rests is not None)


class Places(NamedTuple):
    """Where the patches of an image stand among its tokens, and what is added to them there.

    Attributes:
        table: (tokens, dim) for a patch its position; for any other token all that it is.
        front: tokens in front of the patches.
        patches: how many.
    """

    table: Tensor
    front: int
    patches: int


class Affine(NamedTuple):
    """A factor and a summand for each channel: what a batch norm is, once it has learnt."""

    factor: Tensor
    summand: Tensor

    @classmethod
    def of(cls, norm: nn.BatchNorm1d) -> Affine:
        """The batch norm with its running statistics."""
        assert norm.running_mean is not None
        assert norm.running_var is not None
        factor = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
        return cls(factor, norm.bias.detach() - norm.running_mean * factor)

    def as_share_of(self, grid: StoredGrid) -> Affine:
        """The same, counted from 0, the lowest step of a grid, to 1, the highest."""
        whole = grid.scale * grid.top
        return Affine(self.factor / whole, self.summand / whole + grid.zero / grid.top)

    def padded(self, length: int) -> Affine:
        """The same with zeros at the end."""
        return Affine(*(F.pad(part, (0, length - len(part))) for part in self))

    def behind(self, weights: StoredWeights) -> StoredWeights:
        """A layer with it behind, which is a layer again."""
        factor, summand = self.padded(len(weights.bias))
        return replace(weights, scale=weights.scale * factor, bias=weights.bias * factor + summand)
