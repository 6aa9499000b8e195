"""Pixels that count, and how sure a picture of logits is, as one number for each image.

Every cell of the picture has its class probabilities; what differs is what is taken of them (the largest, its lead, the
entropy) and how the cells become one number (after Jazbec et al. 2024). Cells are those of the token grid: the decoder
makes one decision a token, stretching it to pixels adds nothing but interpolation, takes a hundred times longer, and
would make the confidence depend on the size of a label that does not exist when the model is used.

All go from 0 to 1. Stored plans name these functions by their task, and their thresholds mean nothing for any other
function: none of them, and no number below, may change once it has been published. Something better gets a new name.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE = 255  # in a mask: a pixel that does not count
LOW_SHARE = 0.25
LOWEST_SHARE = 0.1
PATCH_SHARE = 0.01
PATCH_CELLS = 3  # 48 pixels with patches of 16, 42 with patches of 14: the published patches have 50
REGION_SHARE = 0.1
REGION_CELLS = 4
SURE = 0.9  # a cell is sure from this probability on


def class_probabilities(logits: Tensor) -> Tensor:
    """Probabilities of every cell in single precision, (batch, classes, rows, columns) as the logits."""
    return torch.softmax(logits.float(), dim=1)


def cell_confidence(logits: Tensor) -> Tensor:
    """Largest probability of every cell: (batch, classes, rows, columns) to (batch, rows, columns)."""
    return class_probabilities(logits).amax(dim=1)


def mean_confidence(logits: Tensor) -> Tensor:
    """The mean over cells: the usual choice."""
    return cell_confidence(logits).mean(dim=(1, 2))


def median_confidence(logits: Tensor) -> Tensor:
    """The middle cell: a small doubtful object does not count."""
    return quantile(cell_confidence(logits), 0.5)


def low_confidence(logits: Tensor) -> Tensor:
    """A quarter of the cells is less sure than this."""
    return quantile(cell_confidence(logits), LOW_SHARE)


def lowest_confidence(logits: Tensor) -> Tensor:
    """A tenth of the cells is less sure than this: edges and small objects decide."""
    return quantile(cell_confidence(logits), LOWEST_SHARE)


def patch_confidence(logits: Tensor) -> Tensor:
    """All but a hundredth of the patches are surer than this: one doubtful corner is enough to go on."""
    return quantile(patch_means(cell_confidence(logits), PATCH_CELLS), PATCH_SHARE)


def region_confidence(logits: Tensor) -> Tensor:
    """All but a tenth of somewhat larger patches are surer than this: one corner is not enough, a region is."""
    return quantile(patch_means(cell_confidence(logits), REGION_CELLS), REGION_SHARE)


def margin_confidence(logits: Tensor) -> Tensor:
    """Mean lead of a cell's likeliest class over the next: two classes of one half each are no decision."""
    with_nothing = F.pad(class_probabilities(logits), (0, 0, 0, 0, 0, 1))  # a single class leads by itself
    best = with_nothing.topk(2, dim=1).values  # (batch, 2, rows, columns)
    return (best[:, 0] - best[:, 1]).mean(dim=(1, 2))


def entropy_confidence(logits: Tensor) -> Tensor:
    """1 - the cells' mean entropy, as a share of the largest that so many classes can have."""
    entropy = torch.special.entr(class_probabilities(logits)).sum(dim=1)  # (batch, rows, columns)
    largest = math.log(max(2, logits.shape[1]))  # of a single class the entropy is 0, and so is log(1)
    return (1 - entropy.mean(dim=(1, 2)) / largest).clamp(0, 1)


def sure_share(logits: Tensor) -> Tensor:
    """Share of the cells whose largest probability is at least nine tenths."""
    return (cell_confidence(logits) >= SURE).float().mean(dim=(1, 2))


def class_confidence(logits: Tensor) -> Tensor:
    """The mean over the classes found, each the mean largest probability of its cells: a pole weighs what a road does.

    As in the score of an image, where every class has the same weight, however few its pixels are.
    """
    probability, found, count = _found(logits)
    return _mean_of_found((probability * found).sum(dim=2) / count.clamp(min=1), count)


def expected_iou(logits: Tensor) -> Tensor:
    """What the mean IoU over the classes found would be if the probabilities were true: an estimate of the score.

    The intersection is what lies in a class's cells of its probability, the union those cells and what of its
    probability lies elsewhere. (Borges et al. 2024 do the same with Dice coefficients.)
    """
    probability, found, count = _found(logits)
    together = (probability * found).sum(dim=2)  # (batch, classes)
    elsewhere = (probability * ~found).sum(dim=2)
    return _mean_of_found(together / (count + elsewhere).clamp(min=1), count)


def _found(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities and whether a class is the likeliest, each (batch, classes, cells), and cells (batch, classes)."""
    probability = class_probabilities(logits).flatten(2)
    found = probability.max(dim=1, keepdim=True).indices == torch.arange(logits.shape[1], device=logits.device)[:, None]
    return probability, found, found.sum(dim=2)


def _mean_of_found(values: Tensor, count: Tensor) -> Tensor:
    """The mean over the classes that have cells: (batch, classes) to (batch,)."""
    present = count > 0
    return (values * present).sum(dim=1) / present.sum(dim=1)


def patch_means(cells: Tensor, side: int) -> Tensor:
    """Means of square patches, narrower at the far edges: (batch, rows, columns) to (batch, fewer, fewer)."""
    rows, columns = cells.shape[1:]
    return F.avg_pool2d(cells[:, None], (min(rows, side), min(columns, side)), ceil_mode=True)[:, 0]


def quantile(cells: Tensor, share: float) -> Tensor:
    """The value that a share of the cells of each picture does not exceed, interpolated: (batch, ...) to (batch,).

    By sorting, which works at any size and inside CUDA graphs.
    """
    ordered = cells.flatten(1).sort(dim=1).values
    place = share * (ordered.shape[1] - 1)
    below = int(place)
    above = min(below + 1, ordered.shape[1] - 1)
    return torch.lerp(ordered[:, below], ordered[:, above], place - below)
