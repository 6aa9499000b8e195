"""Both widths of every block, and behind them the share of the images that gets that far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maqee.apq import utilization
from maqee.report.figures.drawing import BLUE, INK, ORANGE, QUIET, SHADE, Section, new_figure
from maqee.report.palette import shorten
from maqee.report.report_content import RunContent

NAME, TITLE = "widths", "Bits of every block"


def draw_widths(run: RunContent) -> Section:
    """Two bars a block, with lines from the fewest to the most bits of its layers; then heads that have their own."""
    plan = run.plan
    depth, heads = plan.bits.depth, plan.bits.heads
    blocks = np.arange(1, depth + 1)
    after = (*plan.exit_blocks, depth)[: len(heads)]  # some tasks have a head at full depth too
    apart = max(1.3, depth / 9)  # so that names of heads have room
    places = depth + 1 + apart / 2 + apart * np.arange(len(heads))
    reach = utilization(plan.got.exit_mass, (*plan.exit_blocks, depth), depth)
    figure = new_figure(3.2)
    behind = figure.add_subplot()
    behind.bar(blocks, reach, width=1.0, color=SHADE, label="images that reach the block")
    behind.bar(places, [reach[block - 1] for block in after], width=apart, color=SHADE)
    behind.set_ylim(0, 1.02)
    axes = behind.twinx()
    axes.yaxis.tick_left()
    behind.yaxis.tick_right()  # after the other: making a twin moves the ticks of the first to the left
    behind.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"])
    behind.tick_params(axis="y", length=0, labelcolor=QUIET)
    weights, activations = block_widths(run)
    for kind, (widths, shift, colour, name) in enumerate(
        ((weights, -0.16, BLUE, "bits of weights"), (activations, 0.16, ORANGE, "bits of activations"))
    ):
        axes.bar(blocks + shift, [np.mean(layers) for layers in widths], width=0.29, color=colour, label=name)
        axes.vlines(blocks + shift, [min(row) for row in widths], [max(row) for row in widths], color=INK, lw=1.3)
        axes.bar(places + shift, [pair[kind] for pair in heads], width=0.29, color=colour)
    most = max(max(row) for row in (*weights, *activations, *heads))
    axes.set_ylim(0, most + 0.6)
    axes.set_yticks(range(0, most + 1, 1 if most <= 8 else 4))
    shown = blocks if depth <= 16 else blocks[::2]
    behind.set_xticks([*shown, *places], [*map(str, shown), *(f"e{block}" for block in after)])
    behind.set_xlabel("block, and head of an exit" if heads else "block")
    axes.set_title("bits")
    handles = [part for place in (axes, behind) for part in place.get_legend_handles_labels()[0]]
    names = [part for place in (axes, behind) for part in place.get_legend_handles_labels()[1]]
    figure.legend(handles, names, loc="outside lower center", ncols=2, handlelength=1.2, columnspacing=1.4)
    words = (
        "A bit costs as often as its block runs, so look where the grey is high. Bars are means over a block's layers, "
        "thin lines go from their fewest to their most bits."
    )
    alt_of_heads = ""
    if heads:
        words += f" e{after[0]} is the head of the exit after block {after[0]}."
        alt_of_heads = " Of exit heads: " + ", ".join(f"{weight}/{activation}" for weight, activation in heads) + "."
    pairs = ", ".join(f"{np.mean(one):.3g}/{np.mean(two):.3g}" for one, two in zip(weights, activations, strict=True))
    return Section(
        NAME, TITLE, words, f"Mean weight/activation bits of blocks 1 to {depth}: {pairs}.{alt_of_heads}", figure
    )


def draw_all_widths(runs: Sequence[RunContent]) -> Section:
    """The bits of every block of several runs, one under the other, on the same scales."""
    depth = max(run.plan.bits.depth for run in runs)
    most = max(max(row) for run in runs for widths in block_widths(run) for row in widths)
    figure = new_figure(0.8 + 1.15 * len(runs))
    panels = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, run in zip(panels, runs, strict=True):
        blocks = np.arange(1, run.plan.bits.depth + 1)
        reach = utilization(run.plan.got.exit_mass, (*run.plan.exit_blocks, len(blocks)), len(blocks))
        axes.bar(blocks, np.asarray(reach) * (most + 0.6), width=1.0, color=SHADE, label="images that reach the block")
        for widths, shift, colour, name in zip(
            block_widths(run), (-0.16, 0.16), (BLUE, ORANGE), ("bits of weights", "bits of activations"), strict=True
        ):
            axes.bar(blocks + shift, [np.mean(layers) for layers in widths], width=0.29, color=colour, label=name)
        axes.set_title(f"{shorten(run.name, 34)}: bits")
    panels[0].set_ylim(0, most + 0.6)
    panels[0].set_yticks(range(0, most + 1, 2 if most <= 8 else 4))
    panels[-1].set_xticks(range(1, depth + 1, 1 if depth <= 16 else 2))
    panels[-1].set_xlabel("block")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, handlelength=1.2, columnspacing=1.4)
    words = (
        "The same scale for every run: mean bits of a block's layers, and in grey the share of the images that reaches "
        "the block (as high as the panel: all of them)."
    )
    alt = "; ".join(
        f"{run.name}: "
        + ", ".join(f"{np.mean(one):.3g}/{np.mean(two):.3g}" for one, two in zip(*block_widths(run), strict=True))
        for run in runs
    )
    return Section(NAME, TITLE, words, f"Mean weight/activation bits of every block, {alt}.", figure)


def block_widths(run: RunContent) -> tuple[list[list[int]], list[list[int]]]:
    """Bits of weights and of activations: of every block those of its layers."""
    blocks = run.plan.bits.blocks
    return [[pair[0] for pair in block.linear] for block in blocks], [[pair[1] for pair in block] for block in blocks]
