"""Options of `maqee compress` that say how bits are chosen."""

from __future__ import annotations

from typing import Annotated

import typer

from maqee.cli.options import ASK, SEARCH

Like = Annotated[
    str | None,
    typer.Option(
        metavar="W4A4",
        help="Best accuracy at the cost of these uniform widths with their own best thresholds.",
        rich_help_panel=ASK,
    ),
]
PlanFrontier = Annotated[
    bool,
    typer.Option(
        "--frontier", help="Leave plans for a ladder of accuracies too, from the same search.", rich_help_panel=ASK
    ),
]
BitsChosen = Annotated[
    str | None,
    typer.Option(
        help="Bits to choose: both (of weights and activations), or weights (of whole blocks, as in the paper).",
        show_default="both",
        rich_help_panel=SEARCH,
    ),
]
Grain = Annotated[
    str | None,
    typer.Option(
        help="Choose a pair of widths for each layer, or for each block.", show_default="layer", rich_help_panel=SEARCH
    ),
]
SearchBits = Annotated[
    str | None,
    typer.Option(
        help="Parts to choose bits for: blocks, blocks+heads, or all (patch embedding and classifier too).",
        show_default="blocks+heads",
        rich_help_panel=SEARCH,
    ),
]
WeightRange = Annotated[
    str | None,
    typer.Option(
        metavar="LOW-HIGH",
        help="Fewest and most weight bits to choose from.",
        show_default="3-6",
        rich_help_panel=SEARCH,
    ),
]
ActRange = Annotated[
    str | None,
    typer.Option(
        metavar="LOW-HIGH",
        help="Fewest and most activation bits to choose from.",
        show_default="3-8",
        rich_help_panel=SEARCH,
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        help="direct (what was asked for and nothing else), or paper (its J: risks plus cost).",
        show_default="direct",
        rich_help_panel=SEARCH,
    ),
]
MaxMoves = Annotated[
    int | None,
    typer.Option(
        help="Changes of bits to try after the first allocations.",
        show_default="half as many as blocks; with --bits weights twice as many",
        min=0,
        rich_help_panel=SEARCH,
    ),
]
AverageBits = Annotated[
    float | None,
    typer.Option(
        help="With --bits weights: average weight bits of the blocks.", show_default="4", rich_help_panel=SEARCH
    ),
]
BitSolver = Annotated[
    str | None,
    typer.Option(
        help="coordinate (as in the paper), or exact: the best thresholds of all in the end.",
        show_default="coordinate",
        rich_help_panel=SEARCH,
    ),
]
CostPrice = Annotated[
    float | None,
    typer.Option(
        help="With --objective paper: price of cost when thresholds are chosen.",
        show_default="0.5",
        rich_help_panel=SEARCH,
    ),
]
