"""Boxes as arrays: conversions and overlaps, for any number of leading dimensions.

A detector's output is one tensor (batch, queries, classes + 1 + 4): class logits, the logit of "no object", and a box
as centre x, centre y, width and height in shares of the image. Targets are (batch, most boxes, 5): class, then the
box in the same form; rows of class -1 are padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

PADDING = -1

Share = tuple[float, float, float, float]  # centre x, centre y, width, height as shares of the image
Row = tuple[float, float, float, float, float]  # class, then a share


def split_output(output: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (batch, queries, classes + 1), "no object" last, and boxes (batch, queries, 4), both float32."""
    output = output.float()
    return output[..., :-4], output[..., -4:]


def split_target(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Classes (batch, most) with padding as class 0, boxes (batch, most, 4), and which rows are real (batch, most)."""
    real = target[..., 0] != PADDING
    return target[..., 0].long().clamp(min=0), target[..., 1:].float(), real


def to_corners(boxes: Tensor) -> Tensor:
    """Centre x, centre y, width, height to left, top, right, bottom."""
    centre, size = boxes[..., :2], boxes[..., 2:]
    return torch.cat([centre - size / 2, centre + size / 2], dim=-1)


def overlap(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """IoU and generalised IoU of boxes given by their centres, (..., 4) each, broadcast against each other.

    Generalised IoU also falls with the empty part of the box around both, so that boxes which do not meet still feel
    which way to go (Rezatofighi et al. 2019).
    """
    one, other = to_corners(one), to_corners(other)
    meeting = _area(torch.maximum(one[..., :2], other[..., :2]), torch.minimum(one[..., 2:], other[..., 2:]))
    around = _area(torch.minimum(one[..., :2], other[..., :2]), torch.maximum(one[..., 2:], other[..., 2:]))
    union = _area(one[..., :2], one[..., 2:]) + _area(other[..., :2], other[..., 2:]) - meeting
    tiny = torch.finfo(union.dtype).tiny
    iou = meeting / union.clamp(min=tiny)
    return iou, iou - (around - union) / around.clamp(min=tiny)


def _area(low: Tensor, high: Tensor) -> Tensor:
    return (high - low).clamp(min=0).prod(dim=-1)


class Clipped(NamedTuple):
    """A box within its image: as shares of it, or None if nothing is left, and whether something was cut off."""

    row: Share | None
    cut: bool


def clip_to_image(box: Sequence[Any], size: Sequence[Any], slack: float = 0.5) -> Clipped:
    """Left, top, width, height in pixels to a box in shares of an image of (width, height) pixels.

    A box may end up to half a pixel outside, which is rounding and not reported. Numbers that are no box raise
    ValueError.
    """
    numbers = [float(value) for value in (*box, *size)]
    if len(numbers) != 6 or not all(math.isfinite(value) for value in numbers):
        raise ValueError(f"{list(box)} is not left, top, width, height")
    left, top, width, height, across, down = numbers
    if width < 0 or height < 0 or across <= 0 or down <= 0:
        raise ValueError(f"{list(box)} in an image of {list(size)} pixels has a negative side")
    right, bottom = left + width, top + height
    inside = (
        min(max(left, 0.0), across),
        min(max(top, 0.0), down),
        min(max(right, 0.0), across),
        min(max(bottom, 0.0), down),
    )
    cut = any(abs(old - new) > slack for old, new in zip((left, top, right, bottom), inside, strict=True))
    left, top, right, bottom = inside
    if right <= left or bottom <= top:
        return Clipped(None, cut)
    return Clipped(
        ((left + right) / 2 / across, (top + bottom) / 2 / down, (right - left) / across, (bottom - top) / down), cut
    )
