"""Position embeddings of a ViT: stretched to another grid, and started for tokens that have no place in the image.

Libraries stretch them in different ways, and a network at another image size computes what it did at home only if its
own way is kept. All are bicubic:

- "plain": transformers' ViT, DeiT, DINOv2 and YOLOS; points between the old ones are interpolated.
- "antialias": timm, and DINOv2 with registers; another cubic curve, which is widened where the new grid is coarser.
- "offset": the original DINOv2 release; "plain" with a step for a grid that is a tenth of a patch larger.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from maqee.models.config import PositionResize

Grid = tuple[int, int]  # rows, columns
_OFFSET = 0.1  # of a patch


def resize_positions(positions: Tensor, prefix: int, old: Grid, new: Grid, rule: PositionResize = "plain") -> Tensor:
    """Stretch the patch part of position embeddings to another grid, bicubically; all other tokens stay.

    Args:
        positions: (n, prefix + old rows * old columns + detection, dim); n is 1, or one for each gap between blocks.
        prefix: number of special tokens at the front; what lies behind the patches are detection tokens.
        old: grid the embedding was made for.
        new: grid wanted.
        rule: whose way of stretching.
    """
    if old == new:
        return positions
    patch_count = old[0] * old[1]
    special, patches, detection = positions.tensor_split((prefix, prefix + patch_count), dim=1)
    resized = _resize_grid(patches, old, new, rule).to(positions.dtype)
    return torch.cat([special, resized, detection], dim=1)


def spread_over(patches: Tensor, grid: Grid, count: int) -> Tensor:
    """Positions for `count` tokens that are to start evenly spread over the image: the patch positions, coarser.

    They give each token a place that belongs to its anchor box. On their own, without anchors, they made no difference
    in a short trial.

    Args:
        patches: (1, rows * columns, dim), the patch part of a position embedding.
        grid: its rows and columns.
        count: tokens wanted.
    """
    return _resize_grid(patches, grid, coarse_grid(count, grid))[:, :count]


def coarse_grid(count: int, grid: Grid) -> Grid:
    """Rows and columns with room for `count` tokens, in about the proportions of `grid`.

    Example:
        >>> coarse_grid(108, (24, 32))
        (9, 12)
    """
    rows = max(1, min(count, round(math.sqrt(count * grid[0] / grid[1]))))
    return rows, -(-count // rows)


def _resize_grid(patches: Tensor, old: Grid, new: Grid, rule: PositionResize = "plain") -> Tensor:
    """(n, old rows * old columns, dim) to (n, new rows * new columns, dim), float32."""
    picture = patches.float().unflatten(1, old).permute(0, 3, 1, 2)  # (n, dim, rows, columns)
    if rule == "offset":
        factors = [(side + _OFFSET) / before for side, before in zip(new, old, strict=True)]
        picture = F.interpolate(picture, scale_factor=factors, mode="bicubic", align_corners=False)
    else:
        antialias = rule == "antialias"
        picture = F.interpolate(picture, size=new, mode="bicubic", align_corners=False, antialias=antialias)
    return picture.flatten(2).transpose(1, 2)
