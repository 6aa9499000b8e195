"""Where images leave, and how good the answers are there."""

from __future__ import annotations

import numpy as np

from maqee.policy import take_exits
from maqee.report.figures.drawing import BLUE, QUIET, Section, new_figure
from maqee.report.report_content import RunContent
from maqee.report.report_words import choice_words

NAME, TITLE = "exits", "Where images leave"
LETTER = 0.029  # of a label beside a bar, as a share of the room for both


def draw_exits(run: RunContent) -> Section:
    """A bar for each exit, the first on top."""
    if not run.exits:
        return Section(NAME, TITLE, "The model has no exits: every image runs to full depth.")
    mass = run.plan.got.exit_mass
    figure = new_figure(0.6 + 0.42 * len(mass))
    axes = figure.add_subplot()
    places = np.arange(len(mass))
    axes.barh(places, mass, height=0.66, color=BLUE)
    labels = [f"{share:.0%}{note}" for share, note in zip(mass, _notes(run), strict=True)]
    for place, share, label in zip(places, mass, labels, strict=True):
        axes.text(share + 0.012, float(place), label, va="center", fontsize=9.5)
    wanted = [f" ({choice_words(value)})" for value in run.plan.thresholds]
    axes.set_yticks(places, [f"{name}{need}" for name, need in zip(run.exit_names, [*wanted, ""], strict=True)])
    axes.invert_yaxis()
    axes.set_xlim(0, max(mass) / (1 - min(0.7, LETTER * max(map(len, labels)))))
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_color(QUIET)
    axes.tick_params(axis="y", length=0)
    early = sum(mass[:-1])
    words = (
        f"{early:.0%} of the calibration images are answered early; the mean image stops after block "
        f"{run.plan.got.mean_exit:.2f} of {run.plan.bits.depth}. In brackets: how sure an exit must be. Beside each "
        "bar: the share that leaves there, and how good its answers are (simulated)."
    )
    shares = ", ".join(f"{name} {share:.0%}" for name, share in zip(run.exit_names, mass, strict=True))
    return Section(NAME, TITLE, words, f"Shares of the images that leave: {shares}.", figure)


def _notes(run: RunContent) -> list[str]:
    """How good those who leave at each exit are answered."""
    if run.trace is None:
        return [""] * (run.exits + 1)
    taken = take_exits(run.trace.confidence[:, :-1], run.plan.thresholds)
    right = "right" if run.score == "accuracy" else run.score
    notes = []
    for number in range(run.exits + 1):
        scores = run.trace.correct[taken == number, number].astype(np.float64)
        notes.append(f", {right} {scores.mean():.1%}" if scores.size else "")
    return notes
