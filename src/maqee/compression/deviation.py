"""How far a block's output is from the full-precision one, for each image: the terms of QID and inverse SQNR.

The tensor versions of `maqee.apq.risks.range_deviation` and `noise_ratio`, which are the reference.
"""

from __future__ import annotations

from torch import Tensor

from maqee.apq.risks import EPSILON


def range_deviation(reference: Tensor, output: Tensor) -> Tensor:
    """(range / range of the reference - 1)^2 over all tokens and channels: (batch, ...) to (batch,)."""
    ours, theirs = output.flatten(1), reference.flatten(1)
    width = (theirs.amax(dim=1) - theirs.amin(dim=1)).clamp(min=EPSILON)
    return ((ours.amax(dim=1) - ours.amin(dim=1)) / width - 1).square()


def noise_ratio(reference: Tensor, output: Tensor) -> Tensor:
    """||h - h~||^2 / ||h||^2: (batch, ...) to (batch,)."""
    energy = reference.flatten(1).square().sum(dim=1).clamp(min=EPSILON)
    return (output - reference).flatten(1).square().sum(dim=1) / energy
