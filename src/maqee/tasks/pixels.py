"""Pixels that count, and how sure a picture of logits is, as one number for each image.

Every cell of the picture has its largest class probability; what differs is how the cells become one number (after
Jazbec et al. 2024). Cells are those of the token grid: the decoder makes one decision a token, stretching it to pixels
adds nothing but interpolation, takes a hundred times longer, and would make the confidence depend on the size of a
label that does not exist when the model is used.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE = 255  # in a mask: a pixel that does not count
LOW_SHARE = 0.25
PATCH_SHARE = 0.01
PATCH_CELLS = 3  # 48 pixels with patches of 16, 42 with patches of 14: the published patches have 50


def cell_confidence(logits: Tensor) -> Tensor:
    """Largest probability of every cell: (batch, classes, rows, columns) to (batch, rows, columns)."""
    return torch.softmax(logits.float(), dim=1).amax(dim=1)


def mean_confidence(logits: Tensor) -> Tensor:
    """The mean over cells: the usual choice."""
    return cell_confidence(logits).mean(dim=(1, 2))


def median_confidence(logits: Tensor) -> Tensor:
    """The middle cell: a small doubtful object does not count."""
    return quantile(cell_confidence(logits), 0.5)


def low_confidence(logits: Tensor) -> Tensor:
    """A quarter of the cells is less sure than this."""
    return quantile(cell_confidence(logits), LOW_SHARE)


def patch_confidence(logits: Tensor) -> Tensor:
    """All but a hundredth of the patches are surer than this: one doubtful corner is enough to go on."""
    cells = cell_confidence(logits)[:, None]
    rows, columns = cells.shape[2:]
    side = min(rows, PATCH_CELLS), min(columns, PATCH_CELLS)
    return quantile(F.avg_pool2d(cells, side, ceil_mode=True)[:, 0], PATCH_SHARE)


def quantile(cells: Tensor, share: float) -> Tensor:
    """The value that a share of the cells of each picture does not exceed, interpolated: (batch, ...) to (batch,).

    By sorting, which works at any size and inside CUDA graphs.
    """
    ordered = cells.flatten(1).sort(dim=1).values
    place = share * (ordered.shape[1] - 1)
    below = int(place)
    above = min(below + 1, ordered.shape[1] - 1)
    return torch.lerp(ordered[:, below], ordered[:, above], place - below)
