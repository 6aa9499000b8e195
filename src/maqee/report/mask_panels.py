"""Segmentation: classes as colours over a grey image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from maqee.evaluation.answers import Example
from maqee.report.palette import UNCOUNTED, as_shares, class_colours
from maqee.report.panels import draw_image
from maqee.tasks.pixels import IGNORE
from maqee.tasks.segmentation import stretch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRENGTH = 0.8  # of the colours, the rest is the image: enough of it to see shapes, too little to change a colour
LEAST_SHARE = 0.001  # of a picture that a class must cover to be named


class MaskPainter:
    """Paints masks at the size of the true one."""

    def __init__(self, example: Example, classes: tuple[str, ...]) -> None:
        self.mask, self.names = example.target[0].long(), classes
        self.size = (int(self.mask.shape[0]), int(self.mask.shape[1]))
        picture = F.interpolate(example.pixels.permute(2, 0, 1)[None], size=self.size, mode="bilinear")[0]
        self.grey = picture.mean(dim=0)
        everything = torch.cat([self.mask.flatten(), *(self._classes(a.output).flatten() for a in example.answers)])
        counts = torch.bincount(everything, minlength=IGNORE + 1)
        present = [label for label in range(len(classes)) if counts[label]]
        self.colours = class_colours(present, len(classes))
        least = LEAST_SHARE * self.mask.numel()
        self.named = [label for label in present if counts[label] >= least]
        self.ignored = bool(counts[IGNORE])

    def truth(self, axes: Axes) -> None:
        """Pixels that do not count are black."""
        self._paint(axes, self.mask)

    def answer(self, axes: Axes, output: Tensor) -> None:
        """The most probable class of every pixel."""
        self._paint(axes, self._classes(output))

    def legend(self) -> list[tuple[str, str]]:
        """Classes that can be seen in the truth or in an answer."""
        entries = [(_over_grey(self.colours[label]), self.names[label]) for label in self.named]
        return [*entries, (UNCOUNTED, "does not count")] if self.ignored else entries

    def _classes(self, output: Tensor) -> Tensor:
        return stretch(output, self.size).argmax(dim=1)[0]

    def _paint(self, axes: Axes, mask: Tensor) -> None:
        table = torch.zeros(IGNORE + 1, 3)
        for label, colour in self.colours.items():
            table[label] = torch.tensor(as_shares(colour))
        strength = torch.where(mask == IGNORE, 1.0, STRENGTH)[..., None]
        draw_image(axes, strength * table[mask] + (1 - strength) * self.grey[..., None])


def _over_grey(colour: str) -> str:
    """A colour as it looks over a grey image."""
    return "#" + "".join(f"{round(255 * (STRENGTH * share + (1 - STRENGTH) / 2)):02X}" for share in as_shares(colour))
