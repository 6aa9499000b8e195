"""What part of a picture a model saw, so that its answers can be told in the picture's own pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.models import Preprocessing
from maqee.tasks.pixels import IGNORE
from maqee.tasks.segmentation import stretch

Sides = tuple[int, int]  # height, width
_AT_ONCE = 1 << 27  # numbers in memory when scores are brought to the size of a picture


@dataclass(frozen=True)
class View:
    """A picture is scaled, and a window of it is what the model sees.

    Attributes:
        picture: height and width of the picture itself.
        scaled: height and width after scaling.
        corner: top and left of the window in the scaled picture; negative where the picture is smaller.
        window: height and width of the window.
    """

    picture: Sides
    scaled: Sides
    corner: Sides
    window: Sides

    @classmethod
    def of(cls, height: int, width: int, preprocessing: Preprocessing) -> View:
        """The view that a model has of a picture of this size."""
        scaled = preprocessing.scaled_size(height, width)
        return cls((height, width), scaled, preprocessing.corner(*scaled), preprocessing.image_size)

    @classmethod
    def whole(cls, height: int, width: int) -> View:
        """The view of a picture that the model takes as it is."""
        return cls((height, width), (height, width), (0, 0), (height, width))

    @property
    def sees_all(self) -> bool:
        """Whether the window is the whole picture and nothing but it."""
        return self.corner == (0, 0) and self.window == self.scaled

    def to_pixels(self, boxes: Tensor) -> Tensor:
        """Left, top, right, bottom (..., 4) as shares of the window to pixels of the picture, cut off at its edges."""
        (top, left), (window_height, window_width) = self.corner, self.window
        (height, width), (scaled_height, scaled_width) = self.picture, self.scaled
        size = boxes.new_tensor([window_width, window_height] * 2)
        start = boxes.new_tensor([left, top] * 2)
        scale = boxes.new_tensor([width / scaled_width, height / scaled_height] * 2)
        pixels = (boxes * size + start) * scale
        return pixels.clamp(min=0).minimum(boxes.new_tensor([width, height] * 2))

    def to_mask(self, scores: Tensor) -> NDArray[np.uint8]:
        """Scores (classes, rows, columns) that cover the window to the best class of every pixel of the picture.

        As evaluation does where the model sees the whole picture: scores are stretched bilinearly. Pixels outside of
        the window are `IGNORE`.
        """
        if len(scores) > IGNORE:
            raise MaqeeError(f"A mask has room for {IGNORE} classes, and the model has {len(scores)}.")
        if self.sees_all:
            return _best_class(scores, self.picture, lambda part: stretch(part[None], self.picture)[0])
        rows, columns = (self._places(side, scores.device) for side in (0, 1))  # where pixels lie in the window, 0 to 1
        first = [int((places < 0).sum()) for places in (rows, columns)]
        rows, columns = (places[(places >= 0) & (places < 1)] for places in (rows, columns))
        grid = torch.stack(torch.meshgrid(2 * columns - 1, 2 * rows - 1, indexing="xy"), dim=-1)[None]  # (1, h, w, 2)

        def sample(part: Tensor) -> Tensor:
            wanted = grid.to(part.dtype)
            return F.grid_sample(part[None], wanted, mode="bilinear", padding_mode="border", align_corners=False)[0]

        mask = np.full(self.picture, IGNORE, dtype=np.uint8)
        seen = _best_class(scores.float(), (len(rows), len(columns)), sample)
        mask[first[0] : first[0] + len(rows), first[1] : first[1] + len(columns)] = seen
        return mask

    def _places(self, side: int, device: torch.device) -> Tensor:
        """Where the centre of each row (side 0) or column (side 1) of the picture lies: 0..1 is within the window."""
        centres = torch.arange(self.picture[side], dtype=torch.float64, device=device) + 0.5
        return (centres * self.scaled[side] / self.picture[side] - self.corner[side]) / self.window[side]


def _best_class(scores: Tensor, size: Sides, enlarge: Callable[[Tensor], Tensor]) -> NDArray[np.uint8]:
    """The class with the highest enlarged score, a few classes at a time: all of a large picture need gigabytes."""
    best = torch.full(size, -torch.inf, device=scores.device)
    answer = torch.zeros(size, dtype=torch.uint8, device=scores.device)
    step = max(1, _AT_ONCE // max(1, size[0] * size[1]))
    for first in range(0, len(scores), step):
        value, number = enlarge(scores[first : first + step]).max(dim=0)  # (height, width) each
        answer = torch.where(value > best, (number + first).to(torch.uint8), answer)
        best = torch.maximum(best, value)
    found: NDArray[np.uint8] = answer.cpu().numpy()
    return found
