"""Batches for training and evaluation. A training batch is a function of the step's number alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from maqee.data.augment import Augmentation, Draws
from maqee.data.dataset import ImageSet
from maqee.data.transforms import fit, normalize, prepare, to_device, to_unit
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing


class TrainBatches:
    """Shuffled, augmented batches.

    `batch(step)` gives the same images whenever and wherever it is asked, which is why training can stop and go on at
    any step, and why two processes that each take half of a batch see what one process would have seen.

    Args:
        source: the training images.
        preprocessing: how the model wants them.
        augmentation: how they are varied.
        batch_size: images of all processes together.
        seed: decides order and variation.
        rank: this process.
        world: number of processes.
        device: where batches are made.
    """

    def __init__(
        self,
        source: ImageSet,
        preprocessing: Preprocessing,
        augmentation: Augmentation,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        device: torch.device | None = None,
    ) -> None:
        if batch_size < 1:
            raise MaqeeError(f"batch_size {batch_size} is less than one image.")
        if batch_size % world:
            raise MaqeeError(f"batch_size {batch_size} cannot be divided among {world} processes.")
        if len(source) < batch_size:
            raise MaqeeError(f"{source.name} has {len(source)} images, fewer than one batch of {batch_size}.")
        if augmentation.mixes and not source.kind.mixable:
            raise MaqeeError(f"{source.name} has {source.kind.name}, which cannot be mixed: turn mixup and cutmix off.")
        if augmentation.trivial and not source.kind.balanced:
            raise MaqeeError(f"{source.name} has {source.kind.name}, which do not follow turns: turn trivial off.")
        self.device = device or torch.device("cpu")
        self.source = source.to(self.device)
        self.preprocessing, self.augmentation = preprocessing, augmentation
        self.batch_size, self.seed = batch_size, seed
        share = batch_size // world
        self.mine = torch.arange(rank * share, (rank + 1) * share)
        self._order = lru_cache(maxsize=2)(self._shuffle)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches; what is left over waits for the next shuffle."""
        return len(self.source) // self.batch_size

    def _shuffle(self, epoch: int) -> Tensor:
        return torch.randperm(len(self.source), generator=_generator(self.seed, 0, epoch))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images (n, channels, h, w), normalised, and targets, which become probabilities where images are mixed."""
        epoch, number = divmod(step, self.steps_per_epoch)
        indices = self._order(epoch)[number * self.batch_size : (number + 1) * self.batch_size]
        draws = self.augmentation.draw(_generator(self.seed, 1, step), self.batch_size)
        images, targets = self._load(indices, self.mine, draws)
        if self.augmentation.mixes:
            partners = draws.partner[self.mine]
            others, other_targets = self._load(indices, partners, draws)
            classes = len(self.source.classes)
            own, other = F.one_hot(targets, classes).float(), F.one_hot(other_targets, classes).float()
            images, targets = draws.mix(images, others, own, other)
        return normalize(fit(images, self.preprocessing), self.preprocessing), targets

    def _load(self, indices: Tensor, which: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        chosen = indices[which]
        pixels = to_device(self.source.images.load(chosen, self.preprocessing), self.device)
        images = self.augmentation.vary(to_unit(pixels), draws, which)
        targets = self.source.load_targets(chosen, self.preprocessing, self.device)
        targets = self.augmentation.vary_targets(self.source.kind, targets, draws, which)
        return images, self.source.kind.fit(targets, self.preprocessing)


def eval_batches(
    source: ImageSet, preprocessing: Preprocessing, batch_size: int, device: torch.device | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """All images in order, normalised, with their targets."""
    target = device or torch.device("cpu")
    for start in range(0, len(source), batch_size):
        indices = torch.arange(start, min(start + batch_size, len(source)))
        pixels = to_device(source.images.load(indices, preprocessing), target)
        targets = source.kind.fit(source.load_targets(indices, preprocessing, target), preprocessing)
        yield prepare(pixels, preprocessing), targets


def _generator(*numbers: int) -> torch.Generator:
    """A generator for a tuple of numbers; different tuples give unrelated streams."""
    seed = 0
    for number in numbers:
        seed = (seed * 0x9E3779B97F4A7C15 + number + 0x632BE59BD9B4E019) % 2**63
    return torch.Generator().manual_seed(seed)
