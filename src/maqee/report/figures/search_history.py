"""How the search went: what every step tried, and the best so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from maqee.apq.records import Position
from maqee.report.figures.drawing import BLUE, INK, ORANGE, QUIET, Section, legend_below, new_figure, show_percent
from maqee.report.plan_table import search_words
from maqee.report.report_content import RunContent

NAME, TITLE = "history", "How the search went"
KINDS = {
    "start": "the first widths",
    "exact": "an allocation from the knapsack",
    "swap": "a bit swapped",
    "move": "a width moved",
    "last": "thresholds once more",
    "recovery": "after training",
}
MARKERS = {"start": "D", "exact": "o", "swap": "^", "move": "^", "last": "s", "recovery": "P"}


def draw_history(run: RunContent) -> Section:
    """What was to be made best, step by step; hollow where the target is missed."""
    history = run.plan.history
    if not history:
        return Section(
            NAME, TITLE, "The plan does not say how it was found: it was made by hand, or its history removed."
        )
    what, value = _aim(run)
    figure = new_figure(3.3)
    axes = figure.add_subplot()
    for kind, name in KINDS.items():
        steps = [(place, step) for place, step in enumerate(history) if step.kind == kind]
        met = [(place, value(step.position)) for place, step in steps if step.position.excess <= 0]
        missed = [(place, value(step.position)) for place, step in steps if step.position.excess > 0]
        colour = ORANGE if kind == "start" else BLUE
        style: dict[str, Any] = {"marker": MARKERS[kind], "ls": "none", "color": colour, "ms": 6}
        if met:
            axes.plot(*zip(*met, strict=True), label=name, **style)
        if missed:
            label = f"{name}, misses the target" if not met else None
            axes.plot(*zip(*missed, strict=True), label=label, fillstyle="none", **style)
    axes.step(range(len(history)), _best(run, value), where="post", color=INK, lw=1.2, label="the best so far")
    axes.set_xlabel("step")
    axes.set_title(what)
    axes.grid(True, axis="y")
    axes.locator_params(axis="x", integer=True)
    axes.spines["left"].set_color(QUIET)
    if what == run.score:
        show_percent(axes.yaxis)
    legend_below(figure, axes)
    did, aim = search_words(history), "higher" if what == run.score else "lower"
    words = (
        f"{did[:1].upper()}{did[1:]}. The {aim} the better; hollow marks miss what was asked for (calibration images, "
        "simulated)."
    )
    if run.plan.options.before_training:
        words += (
            " Allocations were judged as training may leave them, with the most weight bits: only the first widths and "
            "the last steps are of networks as they are."
        )
    return Section(NAME, TITLE, words, f"{what} over {len(history)} steps of the search.", figure)


def _aim(run: RunContent) -> tuple[str, Callable[[Position], float]]:
    """What the search made best: the cost, the score, or the paper's J."""
    asked = run.asked
    if asked.asks_for_metric:
        return f"cost ({run.cost_unit})", lambda position: run.cost_of(position.figures)
    if run.plan.options.objective == "direct" and not asked.asks_for_nothing:
        return run.score, lambda position: position.figures.metric
    return "J", lambda position: position.objective


def _best(run: RunContent, value: Callable[[Position], float]) -> list[float]:
    """The value of the best position after every step."""
    best, values = run.plan.history[0].position, []
    for step in run.plan.history:
        if step.kind == "recovery":
            best = step.position if step.accepted else best
        elif step.position.beats(best):
            best = step.position
        values.append(value(best))
    return values
