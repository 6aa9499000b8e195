"""TrivialAugment (Müller and Hutter, 2021): one change to every picture, of a random kind and a random strength.

Kinds and strengths are those of RandAugment, which suit small pictures. All pictures of a batch are changed at once:
each kind is worked out for all of them and kept where it was drawn, which costs a GPU next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 255
TURNED = ("rotate", "shear-x", "shear-y", "move-x", "move-y")  # kinds that move pixels


def change(images: Tensor, kinds: Tensor, strengths: Tensor) -> Tensor:
    """Change each image in its own way.

    Args:
        images: (n, channels, height, width) in 0..1.
        kinds: (n,), numbers of `KINDS`.
        strengths: (n,) in -1..1; kinds that have no direction take the size alone.
    """
    strength = strengths[:, None, None, None]
    changed = images
    for kind, colour in _COLOURED.items():
        drawn = (kinds == KINDS.index(kind))[:, None, None, None]
        changed = torch.where(drawn, colour(images, strength), changed)
    turned = kinds >= KINDS.index(TURNED[0])  # they come last
    return torch.where(turned[:, None, None, None], _turn(images, kinds, strengths), changed)


def _turn(images: Tensor, kinds: Tensor, strengths: Tensor) -> Tensor:
    """Rotate by up to 30 degrees, shear by up to 0.3, move by up to 0.32 of a side; what was outside is grey."""

    def amount(kind: str, most: float) -> Tensor:
        return torch.where(kinds == KINDS.index(kind), most * strengths, torch.zeros_like(strengths))

    height, width = images.shape[2:]
    angle = amount("rotate", torch.pi / 6)
    right = torch.stack(  # where a pixel's colour comes from, across and down, in units of half a side
        [angle.cos(), (amount("shear-x", 0.3) - angle.sin()) * height / width, amount("move-x", 0.64)], dim=1
    )
    down = torch.stack(
        [(amount("shear-y", 0.3) + angle.sin()) * width / height, angle.cos(), amount("move-y", 0.64)], dim=1
    )
    grid = F.affine_grid(torch.stack([right, down], dim=1), list(images.shape), align_corners=False)
    return F.grid_sample(images - 0.5, grid, mode="bilinear", align_corners=False) + 0.5


def _towards(base: Tensor, images: Tensor, strength: Tensor) -> Tensor:
    """Pillow's enhancements: 1.9 times the distance from `base` at the strength 1, a tenth of it at -1."""
    return (base + (images - base) * (1 + 0.9 * strength)).clamp(0, 1)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _brightness(images: Tensor, strength: Tensor) -> Tensor:
    return _towards(torch.zeros_like(images), images, strength)


def _contrast(images: Tensor, strength: Tensor) -> Tensor:
    return _towards(_grey(images).mean(dim=(2, 3), keepdim=True), images, strength)


def _colour(images: Tensor, strength: Tensor) -> Tensor:
    return _towards(_grey(images), images, strength)


def _sharpness(images: Tensor, strength: Tensor) -> Tensor:
    channels = images.shape[1]
    kernel = images.new_full((channels, 1, 3, 3), 1 / 13)  # Pillow's
    kernel[:, :, 1, 1] = 5 / 13
    smooth = images.clone()  # at the edge as it was, as Pillow has it
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(images, kernel, groups=channels)
    return _towards(smooth, images, strength)


def _posterize(images: Tensor, strength: Tensor) -> Tensor:
    """Keep 8 bits of each value, or as few as 4."""
    step = 2 ** (4 * strength.abs()).round()
    return _levels(images).div(step, rounding_mode="floor") * step / LEVELS


def _solarize(images: Tensor, strength: Tensor) -> Tensor:
    """Invert values from a threshold on: none at the strength 0, all at 1."""
    return torch.where(_levels(images) >= (LEVELS + 1) * (1 - strength.abs()), 1 - images, images)


def _autocontrast(images: Tensor, strength: Tensor) -> Tensor:
    """Stretch the values of each channel to 0..1."""
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-6), images)


def _equalize(images: Tensor, strength: Tensor) -> Tensor:
    """Spread the values of each channel so that all are about equally frequent, with Pillow's rounding."""
    codes = _levels(images).long().flatten(2).flatten(0, 1)  # (n * channels, pixels)
    counts = torch.zeros(len(codes), LEVELS + 1, dtype=torch.long, device=codes.device)
    counts.scatter_add_(1, codes, torch.ones_like(codes))
    last = counts.gather(1, codes.amax(dim=1, keepdim=True))  # of the brightest value
    step = (codes.shape[1] - last) // LEVELS  # (n * channels, 1)
    before = counts.cumsum(dim=1) - counts + step // 2
    table = (before // step.clamp(min=1)).clamp(max=LEVELS)
    spread = table.gather(1, codes).view(images.shape) / LEVELS
    return torch.where(step.view(*images.shape[:2], 1, 1) > 0, spread, images)


def _levels(images: Tensor) -> Tensor:
    return (images * LEVELS).round()


_COLOURED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "solarize": _solarize,
    "posterize": _posterize,
    "colour": _colour,
    "contrast": _contrast,
    "brightness": _brightness,
    "sharpness": _sharpness,
}
KINDS = ("none", *_COLOURED, *TURNED)
