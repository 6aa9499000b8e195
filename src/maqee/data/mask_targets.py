"""Masks as targets: a class for every pixel, in memory or in files, that follow their image wherever it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from maqee.data import transforms
from maqee.data.images import resize_and_crop
from maqee.data.pairs import MaskCode, Pair, read_mask
from maqee.data.targets import TargetKind
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing
from maqee.tasks.pixels import IGNORE


class Masks:
    """Targets (n, height, width) uint8 of one size: class numbers, and `IGNORE` for pixels that do not count.

    They keep their own size where the whole image is scaled to the model's: the model's output is stretched to them.
    Where the model sees a cut of the image, they are scaled and cut alike.
    """

    name = "masks"
    mixable = balanced = False

    def complaint(self, targets: Tensor, classes: int, name_of: Callable[[int], str]) -> str:
        """Every pixel has a class of the list or is ignored."""
        if targets.ndim != 3:
            return f"masks have shape {tuple(targets.shape)}, expected (images, height, width)"
        bad = ((targets >= classes) & (targets != IGNORE)).flatten(1).any(dim=1).nonzero().flatten()
        if not bad.numel():
            return ""
        first = int(bad[0])
        values = targets[first]
        value = int(values[(values >= classes) & (values != IGNORE)][0])
        return f"{bad.numel()} masks have classes beyond 0..{classes - 1}, the first is {value} of {name_of(first)}"

    def relabel(self, targets: Tensor, table: Tensor) -> tuple[TargetKind, Tensor]:
        """A look-up; pixels that do not count stay so."""
        if (highest := int(table.max())) >= IGNORE:
            raise MaqeeError(f"Masks hold classes below {IGNORE}, and the model has one with the number {highest}.")
        whole = torch.full((IGNORE + 1,), IGNORE, dtype=targets.dtype, device=targets.device)
        whole[: len(table)] = table.to(targets.dtype)
        return self, whole[targets.long()]

    def load(self, rows: Tensor, preprocessing: Preprocessing) -> Tensor:
        """As they are."""
        return rows

    def fit(self, targets: Tensor, preprocessing: Preprocessing) -> Tensor:
        """As `transforms.fit` does with a centre cut; else as they are."""
        height, width = targets.shape[1:]
        if not preprocessing.crops or (height, width) == preprocessing.image_size:
            return targets
        size = preprocessing.scaled_size(height, width)
        picture = F.interpolate(targets[:, None].float(), size=size, mode="nearest-exact")
        return _numbers(transforms.centre_crop(picture, preprocessing, fill=IGNORE))

    def shift(self, targets: Tensor, shifts: Tensor, padding: int) -> Tensor:
        """What comes in from outside of the image is ignored."""
        return IGNORE - transforms.shift_crop(IGNORE - targets[:, None], shifts, padding)[:, 0]

    def crop(self, targets: Tensor, boxes: Tensor) -> Tensor:
        """The nearest pixel: classes have no mean."""
        return _numbers(transforms.scale_crop(targets[:, None].float(), boxes, mode="nearest"))

    def flip(self, targets: Tensor, mirrored: Tensor) -> Tensor:
        """Left to right."""
        return transforms.flip(targets[:, None], mirrored)[:, 0]


class MaskFiles(Masks):
    """Targets (n,) that are numbers of files: masks of any size, decoded when asked for, at the model's size.

    For data sets that do not fit into memory. A mask goes through the same scaling and cut as its image, to the nearest
    pixel, so figures are of masks at the model's size.

    Args:
        pairs: images with their masks; row i of the targets is the mask of pair i.
        code: what the numbers in the files mean.
    """

    def __init__(self, pairs: Sequence[Pair], code: MaskCode) -> None:
        self.pairs, self.code = list(pairs), code
        self.table: Tensor | None = None  # other numbers for the classes

    def relabel(self, targets: Tensor, table: Tensor) -> tuple[TargetKind, Tensor]:
        """The files stay as they are; their numbers are looked up when they are read."""
        other = MaskFiles(self.pairs, self.code)
        other.table = table if self.table is None else table[self.table]
        return other, targets

    def complaint(self, targets: Tensor, classes: int, name_of: Callable[[int], str]) -> str:
        """Pixels are checked when they are read."""
        return ""

    def load(self, rows: Tensor, preprocessing: Preprocessing) -> Tensor:
        """(n, height, width) at the model's size."""
        with ThreadPoolExecutor() as pool:
            masks = list(pool.map(lambda row: self._decode(self.pairs[row], preprocessing), rows.tolist()))
        found = torch.from_numpy(np.stack(masks))
        return found if self.table is None else MASKS.relabel(found, self.table)[1]

    def _decode(self, pair: Pair, preprocessing: Preprocessing) -> np.ndarray:
        mask = Image.fromarray(read_mask(pair, self.code))
        return np.array(resize_and_crop(mask, replace(preprocessing, resample="nearest"), fill=IGNORE))

    def fit(self, targets: Tensor, preprocessing: Preprocessing) -> Tensor:
        """They come at the model's size."""
        return targets


def _numbers(picture: Tensor) -> Tensor:
    """Floats (n, 1, height, width) back to uint8 (n, height, width)."""
    return picture[:, 0].round().to(torch.uint8)


MASKS = Masks()
