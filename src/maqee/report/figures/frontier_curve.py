"""What accuracy costs: the plan among everything that was tried, and among other thresholds at its bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from maqee.apq import Figures, Trace, least_cost_problem, policy_figures
from maqee.apq.policy_path import PolicyPath
from maqee.report.figures.drawing import (
    GREEN,
    INK,
    ORANGE,
    QUIET,
    SERIES,
    Section,
    legend_below,
    new_figure,
    show_percent,
)
from maqee.report.report_content import RunContent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME, TITLE = "frontier", "What accuracy costs"
MARKERS = ("*", "P", "X")  # of plans, where there are more runs than colours
DROPS = tuple(np.linspace(0.0, 0.1, 21).tolist())  # below the best that any thresholds reach


def draw_frontier(run: RunContent) -> Section:
    """One run: what was tried, other thresholds at the plan's bits, other plans of the same search, and the plan."""
    words = (
        "Up is better, left is cheaper. The star is the plan; the line shows where other thresholds would take the "
        "same bits (maqee search), small dots are everything that the search tried. Calibration images, simulated."
    )
    figure = new_figure(3.7)
    axes = figure.add_subplot()
    tried = [step.position.figures for step in run.plan.history]
    if tried:
        points = [(run.cost_of(figures), figures.metric) for figures in tried]
        axes.plot(*zip(*points, strict=True), "o", color=QUIET, ms=3.5, alpha=0.55, label="tried by the search")
        axes.plot(*points[0], "D", color=ORANGE, ms=6, label="the first widths")
    if run.trace is not None and run.trace.exits:
        curve = [(run.cost_of(figures), figures.metric) for figures in cheapest(run.trace, run.plan.thresholds)]
        axes.step(*zip(*curve, strict=True), where="post", color=SERIES[0], label="other thresholds, these bits")
    if run.ladder:
        rungs = sorted((run.cost_of(plan.got), plan.got.metric) for _, plan in run.ladder)
        axes.plot(*zip(*rungs, strict=True), "s-", color=GREEN, ms=4.5, lw=1.2, label="other plans (frontier/)")
    axes.plot(run.cost_of(run.plan.got), run.plan.got.metric, "*", color=INK, ms=14, label="the plan")
    if run.trace is not None:
        axes.axhline(run.trace.float_metric, color=QUIET, lw=1, ls="--", label="full precision")
    _label(axes, run)
    legend_below(figure, axes)
    got = f"{run.score} {run.plan.got.metric:.2%} at {run.plan.got.cost_words}"
    return Section(NAME, TITLE, words, f"{run.score} against cost; the plan has {got}.", figure)


def draw_frontiers(runs: Sequence[RunContent]) -> Section:
    """Several runs in one drawing, as long as they count in the same units."""
    if len({(run.cost_unit, run.score) for run in runs}) > 1:
        return Section(
            NAME, TITLE, "These runs count their cost or their score in different units: see each by itself."
        )
    figure = new_figure(3.5 + 0.2 * len(runs))
    axes = figure.add_subplot()
    for number, run in enumerate(runs):
        colour, marker = SERIES[number % len(SERIES)], MARKERS[number // len(SERIES) % len(MARKERS)]
        if run.trace is not None and run.trace.exits:
            curve = [(run.cost_of(figures), figures.metric) for figures in cheapest(run.trace, run.plan.thresholds)]
            axes.step(*zip(*curve, strict=True), where="post", color=colour, lw=1.2)
        axes.plot(run.cost_of(run.plan.got), run.plan.got.metric, marker, color=colour, ms=14, label=f" {run.name}")
    _label(axes, runs[0])
    legend_below(figure, axes)
    words = (
        "Up is better, left is cheaper. A star is a run's plan, a line of its colour what other thresholds would "
        "make of the same bits. Calibration images of each run, simulated."
    )
    return Section(NAME, TITLE, words, f"{runs[0].score} against cost of {len(runs)} runs.", figure)


def cheapest(trace: Trace, start: Sequence[float]) -> list[Figures]:
    """The cheapest policy for each of several scores, by ascending cost; those that another beats are left out."""
    path = PolicyPath(least_cost_problem(trace, 0.0), start)
    best = -path.most_careful
    found = [policy_figures(trace, path.within(drop - best).thresholds) for drop in DROPS if best > drop]
    found.append(policy_figures(trace, start))
    kept: list[Figures] = []
    for figures in sorted(found, key=lambda figures: (figures.cost, -figures.metric)):
        if not kept or figures.metric > kept[-1].metric:
            kept.append(figures)
    return kept


def _label(axes: Axes, run: RunContent) -> None:
    axes.set_xlabel(f"cost ({run.cost_unit})")
    axes.set_title(run.score)
    show_percent(axes.yaxis)
    axes.margins(x=0.08, y=0.12)
    axes.grid(True)
