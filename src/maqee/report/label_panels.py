"""Classification: the label, and the most probable classes of every exit as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from maqee.evaluation.answers import Example
from maqee.report.palette import COLOURS, literal, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 5  # classes shown
RIGHT, WRONG = COLOURS[0], COLOURS[1]
LETTERS = 22  # of a name


class LabelPainter:
    """Bars of probabilities, the true class in another colour and with a tick, so that the colour is not needed."""

    def __init__(self, example: Example, classes: tuple[str, ...]) -> None:
        self.label, self.classes = int(example.target[0]), classes

    def truth(self, axes: Axes) -> None:
        """The name of the class."""
        name = literal(shorten(self.classes[self.label], LETTERS))
        size = 26 if len(name) <= 10 else 14
        axes.text(0.5, 0.5, name, ha="center", va="center", fontsize=size, transform=axes.transAxes)
        axes.set_aspect("equal")

    def answer(self, axes: Axes, output: Tensor) -> None:
        """Names inside the frame, above their bars."""
        probability = output[0].softmax(dim=-1)
        values, labels = probability.topk(min(MOST, len(probability)))
        for row, (value, label) in enumerate(zip(values.tolist(), labels.tolist(), strict=True)):
            right = label == self.label
            axes.barh(row + 0.12, value, height=0.34, color=RIGHT if right else WRONG)
            name = f"{shorten(self.classes[label], LETTERS)}{' ✓' if right else ''}"
            axes.text(0.02, row - 0.08, literal(name), ha="left", va="bottom", fontsize=9)
            axes.text(0.98, row - 0.08, f"{value:.1%}", ha="right", va="bottom", fontsize=9)
        axes.set_xlim(0, 1)
        axes.set_ylim(MOST - 0.4, -0.6)
        axes.set_box_aspect(1)

    def legend(self) -> list[tuple[str, str]]:
        """Two colours."""
        return [(RIGHT, "the true class"), (WRONG, "another class")]
