"""Boxes as targets: padded rows that follow their image when it is cropped or mirrored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from maqee.boxes import PADDING, Row, to_corners
from maqee.data.targets import TargetKind
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing

VISIBLE = 0.3  # a box stays after a crop if at least this share of it is still in the image


def pad_boxes(images: Sequence[Sequence[Row]]) -> Tensor:
    """Lists of rows to one tensor (images, most, 5); an image without boxes is all padding."""
    padded = widen(torch.zeros(len(images), 0, 5), max(1, *(len(rows) for rows in images)))
    for index, rows in enumerate(images):
        if rows:
            padded[index, : len(rows)] = torch.tensor(rows)
    return padded


def widen(targets: Tensor, most: int) -> Tensor:
    """More rows of padding: (n, fewer, 5) to (n, most, 5)."""
    padding = targets.new_zeros(len(targets), most - targets.shape[1], 5)
    padding[..., 0] = PADDING
    return torch.cat([targets, padding], dim=1)


class Boxes:
    """Targets (n, most, 5): class, centre x, centre y, width, height as shares of the image; class -1 is padding."""

    name = "boxes"
    mixable = balanced = False

    def complaint(self, targets: Tensor, classes: int, name_of: Callable[[int], str]) -> str:
        """Classes are whole numbers of the list, boxes have an area and lie within the image."""
        if targets.ndim != 3 or targets.shape[-1] != 5:
            return f"boxes have shape {tuple(targets.shape)}, expected (images, most boxes, 5)"
        label, size = targets[..., 0], targets[..., 3:]
        real = label != PADDING
        corners = to_corners(targets[..., 1:])
        checks = {
            f"boxes have a class outside 0..{classes - 1}": (label < 0) | (label >= classes) | (label != label.round()),
            "boxes have no area": ~(size > 0).all(dim=-1),
            "boxes reach out of the image": ~((corners > -1e-4) & (corners < 1 + 1e-4)).all(dim=-1),
        }
        for problem, wrong in checks.items():
            bad = (real & wrong).nonzero()
            if bad.numel():
                image, row = bad[0].tolist()
                values = ", ".join(f"{value:g}" for value in targets[image, row].tolist())
                return f"{len(bad)} {problem}, the first is ({values}) of {name_of(image)}"
        return ""

    def relabel(self, targets: Tensor, table: Tensor) -> tuple[TargetKind, Tensor]:
        """A look-up of the first column; padding stays padding."""
        label = targets[..., 0].long()
        other = torch.where(label == PADDING, label, table[label.clamp(min=0)])
        return self, torch.cat([other[..., None].to(targets.dtype), targets[..., 1:]], dim=-1)

    def load(self, rows: Tensor, preprocessing: Preprocessing) -> Tensor:
        """As they are."""
        return rows

    def fit(self, targets: Tensor, preprocessing: Preprocessing) -> Tensor:
        """As they are: shares of the image do not change when all of it is scaled."""
        if preprocessing.crops:
            raise MaqeeError(
                "The model cuts the centre out of its images, which boxes do not follow: set resize to null."
            )
        return targets

    def shift(self, targets: Tensor, shifts: Tensor, padding: int) -> Tensor:
        """Not offered: the shift is in pixels, of an image whose size boxes do not know."""
        raise MaqeeError(f"augment.padding {padding} does not work with boxes: use min_scale instead.")

    def crop(self, targets: Tensor, boxes: Tensor) -> Tensor:
        """Boxes relative to the window (n, 4: top, left, height, width), cut off at its edges.

        A box of which less than 30 % stays visible is dropped: what is left of it would not be recognised.
        """
        top, left, height, width = (value[:, None] for value in boxes.unbind(dim=1))
        corners = to_corners(targets[..., 1:])
        start = torch.stack([left, top], dim=-1)  # (n, 1, 2)
        scale = torch.stack([width, height], dim=-1)
        low, high = (corners[..., :2] - start) / scale, (corners[..., 2:] - start) / scale
        whole = (high - low).prod(dim=-1)
        low, high = low.clamp(0, 1), high.clamp(0, 1)
        seen = (high - low).prod(dim=-1)
        moved = torch.cat([targets[..., :1], (low + high) / 2, high - low], dim=-1)
        return _drop(moved, (seen < VISIBLE * whole) | (seen <= 0))

    def flip(self, targets: Tensor, mirrored: Tensor) -> Tensor:
        """Left to right."""
        flipped = targets.clone()
        flipped[..., 1] = 1 - targets[..., 1]
        return _drop(torch.where(mirrored[:, None, None], flipped, targets), targets[..., 0] == PADDING)


def _drop(targets: Tensor, gone: Tensor) -> Tensor:
    """Turn rows into padding."""
    empty = targets.new_tensor([PADDING, 0, 0, 0, 0])
    return torch.where((gone | (targets[..., 0] == PADDING))[..., None], empty, targets)


BOXES = Boxes()
