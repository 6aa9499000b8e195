"""What one exit's threshold does, all others being the plan's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maqee.apq import GRID, Trace, policy_figures
from maqee.policy import take_exits
from maqee.report.figures.drawing import BLUE, INK, ORANGE, SHADE, Section, new_figure, show_percent
from maqee.report.report_content import RunContent
from maqee.report.report_words import choice_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
NAME, TITLE = "thresholds", "Bolder or more careful exits"
BINS = 25


def draw_thresholds(run: RunContent) -> Section:
    """A small drawing for each exit: score and cost over its threshold, and how sure those who arrive there are."""
    if not run.exits:
        return Section(NAME, TITLE, "The model has no exits, and so no thresholds.")
    if run.trace is None:
        return Section(NAME, TITLE, "The folder has no trace, from which other thresholds could be judged.")
    values = np.array([value for value in GRID if value <= 1])
    scores, costs = _scan(run, run.trace, values)
    columns = min(2, run.exits)
    rows = -(-run.exits // columns)
    figure = new_figure(0.45 + 1.75 * rows)
    panels = figure.subplots(rows, columns, squeeze=False)
    for spare in panels.flat[run.exits :]:
        spare.set_axis_off()
    taken = take_exits(run.trace.confidence[:, :-1], run.plan.thresholds)
    for number, axes in zip(range(run.exits), panels.flat, strict=False):
        arriving = run.trace.confidence[taken >= number, number]
        crowd = axes.twinx()
        crowd.hist(arriving, bins=BINS, range=(0, 1), color=SHADE)
        crowd.set_axis_off()
        crowd.set_zorder(0)
        axes.set_zorder(1)
        right = axes.twinx()
        right.set_zorder(2)
        axes.plot(values, scores[number], color=BLUE, lw=1.6, label=run.score)
        right.plot(values, costs[number], color=ORANGE, lw=1.6, ls=(0, (4, 1.5)), label=f"cost ({run.cost_unit})")
        threshold = run.plan.thresholds[number]
        if threshold <= 1:
            axes.axvline(threshold, color=INK, lw=1)
        axes.set_title(f"{run.exit_names[number]}: {choice_words(threshold)}", fontsize=9)
        _limits(axes, right, scores, costs)
        axes.tick_params(axis="x", labelsize=8.5)
        axes.tick_params(axis="y", labelsize=8.5, labelcolor=BLUE, labelleft=number % columns == 0)
        outer = number % columns == columns - 1
        right.tick_params(axis="y", labelsize=8.5, labelcolor=ORANGE, labelright=outer, right=outer)
        right.locator_params(axis="y", nbins=4)
        if number == 0:
            handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
            figure.legend(handles=handles, loc="outside lower center", ncols=2)
    words = (
        "The upright line is the plan's threshold. To its right more images go on: the score (blue) and the cost "
        "(orange) change as the curves say, all other thresholds as they are. Grey: how sure the exit is of the images "
        "that arrive (calibration images, simulated)."
    )
    chosen = ", ".join(f"{run.exit_names[at]} {choice_words(value)}" for at, value in enumerate(run.plan.thresholds))
    return Section(
        NAME, TITLE, words, f"Score and cost over the threshold of each exit; the plan has {chosen}.", figure
    )


def _scan(run: RunContent, trace: Trace, values: Floats) -> tuple[Floats, Floats]:
    """Score and cost at every threshold of every exit: (exits, values) each."""
    scores, costs = np.zeros((2, run.exits, values.size))
    for number in range(run.exits):
        for place, value in enumerate(values):
            thresholds = list(run.plan.thresholds)
            thresholds[number] = float(value)
            figures = policy_figures(trace, thresholds)
            scores[number, place], costs[number, place] = figures.metric, run.cost_of(figures)
    return scores, costs


def _limits(axes: Axes, right: Axes, scores: Floats, costs: Floats) -> None:
    """The same scales in all drawings, so that they can be compared."""
    for place, table in ((axes, scores), (right, costs)):
        room = max(float(np.ptp(table)) * 0.08, abs(float(table.max())) * 1e-3, 1e-9)
        place.set_ylim(float(table.min()) - room, float(table.max()) + room)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.locator_params(axis="y", nbins=4)
    show_percent(axes.yaxis)
