"""What is to be predicted for an image, and how it moves when the image is cropped, shifted or mirrored.

A set keeps its targets as one tensor, a row for each image, whatever they are: labels (n,), masks (n, height, width),
padded boxes (n, most, 5). Its *kind* knows what the numbers mean. Where targets are too large for memory, the rows are
numbers of files, and the kind reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from maqee.models.preprocessing import Preprocessing


class TargetKind(Protocol):
    """The meaning of targets. Methods that follow an image take those of a batch and return them in the same form.

    Attributes:
        name: used in messages.
        mixable: whether two targets have a weighted mean (mixup, cutmix).
        balanced: whether targets are class labels, so that a part held out can be balanced over the classes.
    """

    name: str
    mixable: bool
    balanced: bool

    def complaint(self, targets: Tensor, classes: int, name_of: Callable[[int], str]) -> str:
        """What is wrong with targets (n, ...), without a full stop; empty if nothing is.

        Args:
            targets: all of a set.
            classes: how many there are.
            name_of: what to call an image.
        """

    def load(self, rows: Tensor, preprocessing: Preprocessing) -> Tensor:
        """The targets that rows of the set's tensor stand for: the rows themselves, or what lies in files."""

    def relabel(self, targets: Tensor, table: Tensor) -> tuple[TargetKind, Tensor]:
        """The same targets with class i called table[i], and their kind."""

    def fit(self, targets: Tensor, preprocessing: Preprocessing) -> Tensor:
        """Follow the image from the size it was loaded at to the model's."""

    def shift(self, targets: Tensor, shifts: Tensor, padding: int) -> Tensor:
        """Follow `transforms.shift_crop`."""

    def crop(self, targets: Tensor, boxes: Tensor) -> Tensor:
        """Follow `transforms.scale_crop`."""

    def flip(self, targets: Tensor, mirrored: Tensor) -> Tensor:
        """Follow `transforms.flip`."""


class Labels:
    """One class for each image: nothing that is done to the image changes it."""

    name = "labels"
    mixable = balanced = True

    def complaint(self, targets: Tensor, classes: int, name_of: Callable[[int], str]) -> str:
        """Labels go from 0 to the number of classes less one."""
        bad = ((targets < 0) | (targets >= classes)).nonzero().flatten()
        if not bad.numel():
            return ""
        first = int(bad[0])
        return (
            f"{bad.numel()} labels are outside 0..{classes - 1}, the first is {int(targets[first])} of {name_of(first)}"
        )

    def relabel(self, targets: Tensor, table: Tensor) -> tuple[TargetKind, Tensor]:
        """A look-up."""
        return self, table[targets]

    def load(self, rows: Tensor, preprocessing: Preprocessing) -> Tensor:
        """As they are."""
        return rows

    def fit(self, targets: Tensor, preprocessing: Preprocessing) -> Tensor:
        """As they are."""
        return targets

    def shift(self, targets: Tensor, shifts: Tensor, padding: int) -> Tensor:
        """As they are."""
        return targets

    def crop(self, targets: Tensor, boxes: Tensor) -> Tensor:
        """As they are."""
        return targets

    def flip(self, targets: Tensor, mirrored: Tensor) -> Tensor:
        """As they are."""
        return targets


LABELS = Labels()
