"""The paper's four risks of early exits under quantization, where they arise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maqee.apq import inverse_sqnr, qid
from maqee.apq.risks import exit_risks, margins
from maqee.report.figures.drawing import BLUE, ORANGE, QUIET, Section, new_figure
from maqee.report.report_content import RunContent

NAME, TITLE = "risks", "Where quantization hurts"


def draw_risks(run: RunContent) -> Section:
    """Four small drawings with one axis of blocks; each has its own scale, and its largest bar another colour."""
    if run.trace is None:
        return Section(NAME, TITLE, "The folder has no trace, which the risks are measured on.")
    trace, plan = run.trace, run.plan
    blocks = np.arange(1, trace.depth + 1)
    places = np.array(plan.exit_blocks)
    tau = plan.scales.tau or tuple(margins(trace, plan.options.tau))
    gap, boundary = exit_risks(trace, plan.thresholds, tau, plan.options)
    panels = [
        ("noise of the output (1/SQNR)", blocks, inverse_sqnr(trace)),
        ("drift of the range (QID)", blocks, qid(trace)),
    ]
    if run.exits:
        panels += [
            ("extra loss of who leaves (PGR)", places, gap),
            ("close calls (BSR)", places, boundary),
        ]
    figure = new_figure(1.65 * ((len(panels) + 1) // 2))
    for axes, (title, at, values) in zip(figure.subplots(len(panels) // 2, 2).flat, panels, strict=True):
        axes.bar(at, values, width=0.72, color=_colours(values))
        if not values.any():
            axes.set_ylim(0, 1)
            axes.set_yticks([0])
            axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", color=QUIET)
        axes.set_title(title, fontsize=8.8)
        axes.set_xlim(0.4, trace.depth + 0.6)
        axes.set_xticks(
            at if trace.depth <= 8 else places if len(at) == len(places) else blocks[:: 2 + trace.depth // 16]
        )
        axes.tick_params(labelsize=8.5)
        if values.any():
            axes.locator_params(axis="y", nbins=3)
        axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    near = f" (within {tau[0]:.2g})" if run.exits else ""
    words = (
        "Every block adds noise and moves the range of its output; every exit loses something by answering early, and "
        f"is easily turned round by images near its threshold{near}. Numbers below are blocks, and the worst one is "
        "orange (calibration images, simulated)."
    )
    worst = "; ".join(f"{title} is worst at block {int(at[int(np.argmax(values))])}" for title, at, values in panels)
    return Section(NAME, TITLE, words, f"{worst}.", figure)


def _colours(values: NDArray[np.float64]) -> list[str]:
    worst = int(np.argmax(values))
    return [ORANGE if place == worst else BLUE for place in range(len(values))]
