"""How a truth and an answer are drawn, for each kind of target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Entry = tuple[str, str]  # of a legend: colour, name


class Painter(Protocol):
    """Draws one example; made anew for each, so that it may look at all answers first."""

    def truth(self, axes: Axes) -> None:
        """What is right."""

    def answer(self, axes: Axes, output: Tensor) -> None:
        """What an exit says, (1, ...)."""

    def legend(self) -> list[Entry]:
        """What the colours mean; empty if there are none."""


def draw_image(axes: Axes, pixels: Tensor) -> None:
    """An image (height, width, channels) from 0 to 1; one channel is grey."""
    picture = pixels.expand(-1, -1, 3) if pixels.shape[-1] == 1 else pixels[..., :3]
    axes.imshow(picture.numpy(), interpolation="nearest", extent=(0, 1, 1, 0), aspect=pixels.shape[0] / pixels.shape[1])
