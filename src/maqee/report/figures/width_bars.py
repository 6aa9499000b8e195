"""Both widths of every block, and behind them the share of the images that gets that far."""

from __future__ import annotations

import numpy as np

from maqee.apq import utilization
from maqee.report.figures.drawing import BLUE, INK, ORANGE, QUIET, SHADE, Section, new_figure
from maqee.report.report_content import RunContent

NAME, TITLE = "widths", "Bits of every block"


def draw_widths(run: RunContent) -> Section:
    """Two bars a block, with lines from the fewest to the most bits of its layers."""
    plan = run.plan
    depth = plan.bits.depth
    blocks = np.arange(1, depth + 1)
    reach = utilization(plan.got.exit_mass, (*plan.exit_blocks, depth), depth)
    figure = new_figure(3.2)
    behind = figure.add_subplot()
    behind.bar(blocks, reach, width=1.0, color=SHADE, label="images that reach the block")
    behind.set_ylim(0, 1.02)
    axes = behind.twinx()
    axes.yaxis.tick_left()
    behind.yaxis.tick_right()  # after the other: making a twin moves the ticks of the first to the left
    behind.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    behind.tick_params(axis="y", length=0, labelcolor=QUIET)
    weights = [[pair[0] for pair in block.linear] for block in plan.bits.blocks]
    activations = [[pair[1] for pair in block] for block in plan.bits.blocks]
    for widths, shift, colour, name in (
        (weights, -0.16, BLUE, "bits of weights"),
        (activations, 0.16, ORANGE, "bits of activations"),
    ):
        axes.bar(blocks + shift, [np.mean(layers) for layers in widths], width=0.29, color=colour, label=name)
        axes.vlines(blocks + shift, [min(row) for row in widths], [max(row) for row in widths], color=INK, lw=1.3)
    most = max(max(row) for row in (*weights, *activations))
    axes.set_ylim(0, most + 0.6)
    axes.set_yticks(range(0, most + 1, 1 if most <= 8 else 4))
    behind.set_xticks(blocks if depth <= 16 else blocks[::2])
    behind.set_xlabel("block")
    axes.set_title("bits")
    handles = [part for place in (axes, behind) for part in place.get_legend_handles_labels()[0]]
    names = [part for place in (axes, behind) for part in place.get_legend_handles_labels()[1]]
    figure.legend(handles, names, loc="outside lower center", ncols=2, handlelength=1.2, columnspacing=1.4)
    words = (
        "A bit costs as often as its block runs, so look where the grey is high. Bars are means over a block's layers, "
        "thin lines go from their fewest to their most bits."
    )
    pairs = ", ".join(f"{np.mean(one):.3g}/{np.mean(two):.3g}" for one, two in zip(weights, activations, strict=True))
    return Section(NAME, TITLE, words, f"Mean weight/activation bits of blocks 1 to {depth}: {pairs}.", figure)
