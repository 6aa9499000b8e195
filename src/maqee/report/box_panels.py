"""Detection: boxes with class names and probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from maqee.boxes import split_output, split_target, to_corners
from maqee.evaluation.answers import Example
from maqee.report.palette import class_colours, literal, shorten, text_colour
from maqee.report.panels import draw_image
from maqee.tasks.detection import SURE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTERS = 12  # of a name on a box
FEW = 12  # boxes that have room for whole names
INITIALS = 4  # elsewhere; the legend has the whole name


class BoxPainter:
    """Draws boxes that are more probable than not."""

    def __init__(self, example: Example, classes: tuple[str, ...]) -> None:
        self.pixels, self.target, self.names = example.pixels, example.target, classes
        found = {label for answer in example.answers for label in _sure(answer.output)[0].tolist()}
        truth, _, real = split_target(self.target)
        self.present = sorted(found | set(truth[real].tolist()))
        self.colours = class_colours(self.present, len(classes))

    def truth(self, axes: Axes) -> None:
        """All boxes of the data set, with their names."""
        labels, boxes, real = split_target(self.target)
        self._draw(axes, labels[real], boxes[real], None)

    def answer(self, axes: Axes, output: Tensor) -> None:
        """Objects, the least probable first, so that the surest lie on top."""
        self._draw(axes, *_sure(output))

    def legend(self) -> list[tuple[str, str]]:
        """Classes in the truth or in an answer."""
        return [(self.colours[label], self.names[label]) for label in self.present]

    def _draw(self, axes: Axes, labels: Tensor, boxes: Tensor, probability: Tensor | None) -> None:
        from matplotlib.patches import Rectangle

        draw_image(axes, self.pixels)
        few = len(labels) <= FEW
        for row, label in enumerate(labels.tolist()):
            left, top, right, bottom = to_corners(boxes[row]).clamp(0, 1).tolist()
            colour = self.colours[label]
            axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=colour, lw=1.8))
            name = shorten(self.names[label], LETTERS) if few else self.names[label][:INITIALS]
            words = name if probability is None else f"{name} {float(probability[row]):.2f}"
            axes.text(
                min(max(left, 0.012), 0.84),
                max(top, 0.045),  # a label never leaves the picture
                literal(words),
                fontsize=6.5,
                color=text_colour(colour),
                va="bottom",
                bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            )
        axes.set_xlim(0, 1)
        axes.set_ylim(1, 0)


def _sure(output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Classes, boxes and probabilities of the objects found, the least probable first."""
    logits, boxes = split_output(output)
    probability, labels = logits[0].softmax(dim=-1)[:, :-1].max(dim=-1)
    order = probability.argsort(stable=True)
    order = order[probability[order] > SURE]
    return labels[order], boxes[0][order], probability[order]
