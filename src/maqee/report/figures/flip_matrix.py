"""Who leaves elsewhere because of quantization: earlier than in full precision (premature), or later (delayed)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from maqee.apq.theory.exits import Flips, flips
from maqee.report.figures.drawing import BLUE, INK, LINE, ORANGE, PURPLE, QUIET, Section, new_figure
from maqee.report.report_content import RunContent

if TYPE_CHECKING:
    from matplotlib.patches import Rectangle

NAME, TITLE = "flips", "Who changes exit through quantization"


def draw_flips(run: RunContent) -> Section:
    """A square for each pair of exits: rows are full precision, columns the quantized model."""
    if not run.exits:
        return Section(NAME, TITLE, "The model has no exits, so nobody can leave elsewhere.")
    found = count_flips(run)
    if found is None:
        return Section(NAME, TITLE, "The folder has no trace, which holds the confidences of both models.")
    matrix = np.array(found.matrix)
    size = len(matrix)
    figure = new_figure(0.9 + 0.5 * size)
    axes = figure.add_subplot()
    for row in range(size):
        for column in range(size):
            colour = BLUE if row == column else ORANGE if column < row else PURPLE
            share = (matrix[row, column] / matrix.sum()) ** 0.5  # few must be seen beside many
            axes.add_patch(_square(column, row, colour, 0.6 * share))
            ink = INK if matrix[row, column] else QUIET
            axes.text(column, row, f"{matrix[row, column]}", ha="center", va="center", color=ink)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    names = [name.removeprefix("block ").replace("full depth", "full") for name in run.exit_names]
    axes.set_xticks(range(size), names)
    axes.set_yticks(range(size), names)
    axes.set_xlabel("quantized")
    axes.set_ylabel("full precision")
    axes.set_title("images by the block they leave after")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    words = (
        "Images on the diagonal leave where the full-precision model would let them leave with the same thresholds. "
        f"{found.premature:.1%} leave too early (orange, left of it), {found.delayed:.1%} too late (purple, right of "
        f"it): {found.premature_blocks + found.delayed_blocks:+.2f} blocks an image in all (calibration images, "
        "simulated)."
    )
    shares = f"premature {found.premature:.1%}, delayed {found.delayed:.1%}"
    alt = f"Counts of images by exit in full precision and quantized: {shares}."
    return Section(NAME, TITLE, words, alt, figure)


def count_flips(run: RunContent) -> Flips | None:
    """Both models under the plan's thresholds, as `maqee diagnose` counts; None without a trace."""
    if run.trace is None:
        return None
    trace = run.trace
    return flips(
        trace.float_confidence[:, :-1].astype(np.float64),
        trace.confidence[:, :-1].astype(np.float64),
        np.array(run.plan.thresholds, dtype=np.float32).astype(np.float64),  # as they are really compared with
        np.array(trace.exit_blocks),
        trace.loss.astype(np.float64),
    )


def _square(column: int, row: int, colour: str, alpha: float) -> Rectangle:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, facecolor=to_rgba(colour, alpha), edgecolor=LINE, lw=0.8)
