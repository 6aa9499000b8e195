"""Random augmentation whose draws depend only on a seed, not on how a batch is cut up between processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.data import transforms
from maqee.data.targets import TargetKind
from maqee.data.trivial import KINDS, change


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How training images are varied. Everything is off by default.

    Attributes:
        padding: random window of the image padded by so many pixels.
        flip: mirror half of the images.
        trivial: one change to every image, of random kind and strength (TrivialAugment).
        min_scale: random box of at least this share of the area is stretched to the whole image; 1 is off.
        jitter: brightness, contrast and saturation change by up to this share.
        erase: probability of a grey box.
        mixup: parameter of the Beta distribution of mixing weights; 0 is off.
        cutmix: likewise for pasting a box of another image. With both, a coin decides for each batch.
        mix_share: share of the batches that are mixed at all.
    """

    padding: int = 0
    flip: bool = False
    trivial: bool = False
    min_scale: float = 1.0
    jitter: float = 0.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_share: float = 1.0

    @property
    def mixes(self) -> bool:
        """Whether two images are combined."""
        return self.mixup > 0 or self.cutmix > 0

    def draw(self, generator: torch.Generator, count: int) -> Draws:
        """Everything random about a batch of `count` images; drawn even if unused, so that streams stay in step."""

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator)

        shifts = torch.randint(0, 2 * self.padding + 1, (count, 2), generator=generator)
        mirrored = uniform(count) < (0.5 if self.flip else 0.0)
        boxes = _random_boxes(uniform(count, 4), self.min_scale)
        factors = 1 + self.jitter * (2 * uniform(count, 3) - 1)
        holes = _random_boxes(uniform(count, 4), 0.02, 0.33)
        holes[:, 2] *= uniform(count) < self.erase
        partner = torch.randperm(count, generator=generator)
        pasted, weight, box = self._draw_mix(uniform(4), generator)
        kinds = torch.randint(len(KINDS), (count,), generator=generator)
        strengths = 2 * uniform(count) - 1
        return Draws(shifts, mirrored, boxes, factors, holes, partner, pasted, weight, box, kinds, strengths)

    def _draw_mix(self, numbers: Tensor, generator: torch.Generator) -> tuple[bool, float, Tensor]:
        """(cutmix?, weight of the own image, box) for a batch; the weight is 1 where it is not mixed."""
        if numbers[3] >= self.mix_share:
            return False, 1.0, torch.zeros(1, 4)
        pasted = self.cutmix > 0 and (self.mixup == 0 or bool(numbers[0] < 0.5))
        alpha = self.cutmix if pasted else self.mixup
        weight = _beta(alpha, generator) if alpha > 0 else 1.0
        if not pasted:
            return False, weight, torch.zeros(1, 4)
        side = (1 - weight) ** 0.5
        top, left = float(numbers[1]) * (1 - side), float(numbers[2]) * (1 - side)
        return True, 1 - side * side, torch.tensor([[top, left, side, side]])

    def vary(self, images: Tensor, draws: Draws, which: Tensor) -> Tensor:
        """Apply the draws of samples `which` to their images, floats 0..1 at native size."""
        device = images.device

        def of(draw: Tensor) -> Tensor:
            return transforms.to_device(draw[which], device)

        if self.padding:
            images = transforms.shift_crop(images, of(draws.shifts), self.padding)
        if self.min_scale < 1:
            images = transforms.scale_crop(images, of(draws.boxes))
        if self.flip:
            images = transforms.flip(images, of(draws.mirrored))
        if self.trivial:
            images = change(images, of(draws.kinds), of(draws.strengths))
        if self.jitter:
            images = transforms.jitter(images, of(draws.factors))
        if self.erase:
            images = transforms.erase(images, of(draws.holes))
        return images

    def vary_targets(self, kind: TargetKind, targets: Tensor, draws: Draws, which: Tensor) -> Tensor:
        """Let the targets of samples `which` follow their images wherever `vary` moved pixels, in the same order."""

        def of(draw: Tensor) -> Tensor:
            return transforms.to_device(draw[which], targets.device)

        if self.padding:
            targets = kind.shift(targets, of(draws.shifts), self.padding)
        if self.min_scale < 1:
            targets = kind.crop(targets, of(draws.boxes))
        if self.flip:
            targets = kind.flip(targets, of(draws.mirrored))
        return targets


class Draws(NamedTuple):
    """The random part of a batch, on the CPU: one row a sample, and one mixing for all."""

    shifts: Tensor
    mirrored: Tensor
    boxes: Tensor
    factors: Tensor
    holes: Tensor
    partner: Tensor
    pasted: bool
    weight: float
    box: Tensor
    kinds: Tensor
    strengths: Tensor

    def mix(self, images: Tensor, partners: Tensor, labels: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Mixup, or cutmix where `pasted`, of images and of targets.

        Args:
            images: (n, channels, h, w) in 0..1.
            partners: the images they are mixed with.
            labels: indicators or probabilities (n, classes) of the images.
            others: the same of their partners.
        """
        if not self.pasted:
            return torch.lerp(partners, images, self.weight), torch.lerp(others, labels, self.weight)
        hole = transforms.inside_box(images, transforms.to_device(self.box, images.device))  # (1, 1, h, w)
        share = hole.float().mean()  # of the pixels really pasted, which a coarse image rounds
        return torch.where(hole, partners, images), torch.lerp(labels, others, share)


def _random_boxes(numbers: Tensor, smallest: float, largest: float = 1.0) -> Tensor:
    """(n, 4) uniform numbers to boxes of area smallest..largest and sides in a ratio of 3/4 to 4/3."""
    area = smallest + (largest - smallest) * numbers[:, 0]
    ratio = (3 / 4) ** (1 - 2 * numbers[:, 1])
    ratio = torch.minimum(torch.maximum(ratio, area), 1 / area)  # a box of nearly all the area is nearly square
    height, width = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    return torch.stack([numbers[:, 2] * (1 - height), numbers[:, 3] * (1 - width), height, width], dim=1)


def _beta(alpha: float, generator: torch.Generator) -> float:
    """A draw of Beta(alpha, alpha), as a ratio of Gamma draws that honour the generator."""
    concentration = torch.full((2,), alpha, dtype=torch.float64)
    first, second = torch._standard_gamma(concentration, generator=generator).tolist()
    return first / (first + second) if first + second > 0 else 1.0
