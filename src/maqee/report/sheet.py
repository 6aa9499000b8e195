"""One sheet: an image, its truth, and the answer of every exit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from maqee.evaluation.answers import Answer, Example
from maqee.evaluation.shown import Shown
from maqee.io import write_atomically
from maqee.report.palette import QUIET, literal, shorten
from maqee.report.panels import Entry, Painter, draw_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 3.9  # inches across
DOTS = 110  # an inch
LETTERS_AN_INCH = 11.5  # of the heading
LEGEND_ROWS = 14


def draw_sheet(shown: Shown, example: Example, painter: Painter) -> Figure:
    """Panels in reading order: input, truth, exits from the first to full depth, and what the colours mean."""
    from matplotlib.figure import Figure

    entries = painter.legend()
    count = 2 + len(example.answers) + bool(entries)
    columns = min(count, 4 if count > 6 or count == 4 else 3)
    rows = math.ceil(count / columns)
    shape = example.pixels.shape
    tall = PANEL * max(0.6, min(1.4, shape[0] / shape[1])) + 0.5  # room for two lines of title
    figure = Figure(figsize=(columns * PANEL, rows * tall + 0.6), dpi=DOTS)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1, hspace=0.02)
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.set_xticks([])
        axes.set_yticks([])
    draw_image(panels[0], example.pixels)
    _frame(panels[0], "input\n ", reached=True)
    painter.truth(panels[1])
    _frame(panels[1], "truth\n ", reached=True)
    for axes, answer in zip(panels[2:], example.answers, strict=False):
        painter.answer(axes, answer.output)
        _frame(axes, answer_title(answer, shown.task.score_name), answer.reached, answer.taken)
    for axes in panels[2 + len(example.answers) :]:
        axes.set_axis_off()
    if entries:
        _legend(panels[2 + len(example.answers)], entries)
    room = int(columns * PANEL * LETTERS_AN_INCH)
    lines = (shown.title, f"{shown.data.name}: {example.name}")
    figure.suptitle("\n".join(literal(shorten(line, room)) for line in lines), fontsize=11)
    return figure


def answer_title(answer: Answer, score_name: str) -> str:
    """Where the exit sits, what the policy does there, how sure and how good it is."""
    place = f"exit after block {answer.block}" if answer.threshold is not None else f"full depth, block {answer.block}"
    closed = answer.threshold is not None and answer.threshold > 1
    state = " — TAKEN" if answer.taken else "" if answer.reached and not closed else " (not run)"
    needs = ""
    if answer.threshold is not None:
        needs = " (closed)" if closed else f" (needs {answer.threshold:.2f})"
    quality = f"{score_name} {answer.score:.0%}"
    if score_name == "accuracy":  # of one image
        quality = "right" if answer.score else "wrong"
    return f"{place}{state}\nconfidence {answer.confidence:.3f}{needs}, {quality}"


def save_sheet(figure: Figure, path: Path) -> None:
    """A PNG without a date or version in it: equal sheets are equal files."""
    write_atomically(path, lambda file: figure.savefig(file, format="png", metadata={"Software": None}))


def _frame(axes: Axes, title: str, reached: bool, taken: bool = False) -> None:
    """A thick black frame and a bold title where the policy stops; a grey title behind it."""
    from matplotlib.patches import Rectangle

    weight, colour = "bold" if taken else "normal", "black" if reached else QUIET
    axes.set_title(title, fontsize=9.5, fontweight=weight, color=colour, pad=11)
    for side in axes.spines.values():
        side.set_linewidth(0.8)
        side.set_color(QUIET)
    layers = ((13.0, "black", -2), (6.0, "white", -1)) if taken else ()  # a gap, for images that are black themselves
    for width, colour, order in layers:
        frame = Rectangle((0, 0), 1, 1, fill=False, lw=width, edgecolor=colour, joinstyle="miter", zorder=order)
        frame.set(transform=axes.transAxes, clip_on=False)
        axes.add_patch(frame)


def _legend(axes: Axes, entries: list[Entry]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, edgecolor=QUIET, label=literal(shorten(name, 24))) for colour, name in entries]
    axes.legend(
        handles=handles,
        loc="center",
        frameon=False,
        fontsize=10 if len(entries) <= LEGEND_ROWS else 7,
        ncols=math.ceil(len(entries) / LEGEND_ROWS),
    )
