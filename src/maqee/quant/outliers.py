"""Which input columns of a weight matrix deserve a grid of their own (ERQ's dual uniform quantization)."""

from __future__ import annotations

import torch
from torch import Tensor

SHARE = 20  # one column is set apart for every 20 outputs


def outlier_columns(weight: Tensor) -> Tensor:
    """1 for the columns in which weights stick out most often, 0 for the others: (out, in) to (in,) uint8.

    A weight sticks out if it is above the 99th percentile of its row's positive weights or below the 1st of its
    negative ones. The floor(out / 20) columns with most of them are set apart; of equals, the one that is met first
    going through the rows.
    """
    none = torch.tensor(torch.nan, dtype=weight.dtype, device=weight.device)
    high = torch.nanquantile(torch.where(weight > 0, weight, none), 0.99, dim=1, keepdim=True)
    low = torch.nanquantile(torch.where(weight < 0, weight, none), 0.01, dim=1, keepdim=True)
    marked = (weight > high) | (weight < low)
    count = marked.sum(dim=0).tolist()
    first = torch.where(marked.any(dim=0), marked.int().argmax(dim=0), len(weight)).tolist()  # first row to mark it
    order = sorted(range(weight.shape[1]), key=lambda column: (-count[column], first[column], column))
    group = torch.zeros(weight.shape[1], dtype=torch.uint8, device=weight.device)
    chosen = order[: min(len(weight) // SHARE, weight.shape[1] - 1)]
    group[torch.tensor(chosen, dtype=torch.long, device=weight.device)] = 1
    return group
