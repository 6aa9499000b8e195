"""Labelled images, the three separate splits, and the check that no image is in two of them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor

from maqee.data.images import ImageSource
from maqee.data.targets import LABELS, TargetKind
from maqee.data.transforms import to_device
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageSet:
    """Images and what is to be predicted for each.

    Attributes:
        name: used in messages and results, e.g. "cifar100 test".
        images: the pixels.
        targets: a row for each image: labels (n,) int64, masks (n, height, width), ...
        classes: class names in label order.
        kind: what the targets mean.
    """

    name: str
    images: ImageSource
    targets: Tensor
    classes: tuple[str, ...]
    kind: TargetKind = LABELS

    def __post_init__(self) -> None:
        if len(self.images) == 0:
            raise MaqeeError(f"{self.name} holds no images.")
        if len(self.images) != len(self.targets):
            raise MaqeeError(f"{self.name} has {len(self.images)} images and {len(self.targets)} {self.kind.name}.")
        if complaint := self.kind.complaint(self.targets, len(self.classes), self.images.name):
            raise MaqeeError(f"{self.name}: {complaint}.")

    def __len__(self) -> int:
        return len(self.images)

    def select(self, indices: Sequence[int] | Tensor, name: str | None = None) -> ImageSet:
        """Some of the images, in this order."""
        chosen = [int(index) for index in indices]
        return replace(
            self, name=name or self.name, images=self.images.select(chosen), targets=self.targets[torch.tensor(chosen)]
        )

    def to(self, device: torch.device) -> ImageSet:
        """Move what is in memory to a device."""
        return replace(self, images=self.images.to(device), targets=self.targets.to(device))

    def require(self, targets: str, task: str) -> None:
        """Complain if a task needs another kind of targets."""
        if self.kind.name != targets:
            raise MaqeeError(
                f"{self.name} has {self.kind.name}, the task {task!r} needs {targets}: change the task or the data."
            )

    def load_targets(self, indices: Tensor, preprocessing: Preprocessing, device: torch.device) -> Tensor:
        """Targets of some images on a device, where their images are before `transforms.fit`."""
        rows = self.targets[to_device(indices, self.targets.device)]
        return to_device(self.kind.load(rows, preprocessing), device)


@dataclass(frozen=True)
class Splits:
    """Three sets that never mix: training sees `train` only, searches see `calibration` only, figures are of `test`.

    `train` may be missing (a data set that is only for evaluation).
    """

    train: ImageSet | None
    calibration: ImageSet
    test: ImageSet

    def to(self, device: torch.device) -> Splits:
        """Move what is in memory to a device."""
        train = self.train.to(device) if self.train else None
        return Splits(train, self.calibration.to(device), self.test.to(device))

    def training(self) -> ImageSet:
        """The training set, or the user's error that there is none."""
        if self.train is None:
            raise MaqeeError(f"The data of {self.test.name!r} has no training images: it can only be evaluated.")
        return self.train


def hold_out(source: ImageSet, count: int, seed: int, kept: str, held: str) -> tuple[ImageSet, ImageSet]:
    """Split off `count` images; where targets are class labels, from each class in proportion to its size.

    Returns:
        What is left, named `kept`, and what was held out, named `held`.
    """
    if not 0 < count < len(source):
        raise MaqeeError(
            f"Cannot hold {count} of the {len(source)} images of {source.name} out: give 1 to all but one."
        )
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed)).tolist()
    labels = source.targets if source.kind.balanced else torch.zeros(len(source))
    by_class: dict[int, list[int]] = defaultdict(list)
    for index in order:
        by_class[int(labels[index])].append(index)
    quotas = _quotas({label: len(members) for label, members in by_class.items()}, count)
    taken = {index for label, members in by_class.items() for index in members[: quotas[label]]}
    left = [index for index in range(len(source)) if index not in taken]
    return source.select(left, kept), source.select(sorted(taken), held)


def _quotas(sizes: dict[int, int], count: int) -> dict[int, int]:
    """`count` shared out in proportion to `sizes`, by largest remainder; a class is emptied only if it must be.

    Of equal remainders the lower label goes first; where there are not enough for all classes, whoever comes first in
    `sizes`, lest only the first classes be seen.
    """
    total = sum(sizes.values())
    quotas = {label: count * size // total for label, size in sizes.items()}
    place = {label: number for number, label in enumerate(sizes if not any(quotas.values()) else sorted(sizes))}
    by_remainder = sorted(sizes, key=lambda label: (-(count * sizes[label] % total), place[label]))
    for keep in (1, 0):
        for label in by_remainder:
            if sum(quotas.values()) < count and quotas[label] + keep < sizes[label]:
                quotas[label] += 1
    return quotas


@dataclass(frozen=True)
class Overlap:
    """The same image in two splits."""

    first: str
    second: str
    names: tuple[tuple[str, str], ...]


def find_overlaps(splits: Splits) -> list[Overlap]:
    """Compare the content of every image of every pair of splits."""
    sets = [part for part in (splits.train, splits.calibration, splits.test) if part is not None]
    digests = [part.images.digests() for part in sets]
    found = []
    for (one, ones), (two, twos) in combinations(zip(sets, digests, strict=True), 2):
        where = {digest: index for index, digest in enumerate(ones)}
        pairs = [
            (one.images.name(where[digest]), two.images.name(index))
            for index, digest in enumerate(twos)
            if digest in where
        ]
        if pairs:
            found.append(Overlap(one.name, two.name, tuple(pairs)))
    return found


def warn_of_overlaps(splits: Splits) -> list[Overlap]:
    """Log what `find_overlaps` finds: such images flatter every figure measured on them."""
    overlaps = find_overlaps(splits)
    for overlap in overlaps:
        logger.warning(
            "%d images are in both %s and %s, the first is %s",
            len(overlap.names), overlap.first, overlap.second, " = ".join(overlap.names[0]),
        )  # fmt: skip
    return overlaps
