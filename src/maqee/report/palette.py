"""Colours that people with any kind of colour vision can tell apart, and text that figures print as it is."""

from __future__ import annotations

from collections.abc import Sequence

# Okabe and Ito's, then those of Paul Tol's "muted" that are not too like them.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442",
    "#332288", "#999933", "#882255", "#44AA99", "#AA4499", "#117733", "#661100",
)  # fmt: skip
UNCOUNTED = "#000000"
QUIET = "#6B6B6B"  # text and frames of what was not run; 5:1 on white


def class_colours(present: Sequence[int], classes: int) -> dict[int, str]:
    """A colour for each class of a sheet.

    A class has the same colour on all sheets as long as there are enough colours for all classes; else those that are
    present share them out in their order.
    """
    if classes <= len(COLOURS):
        return {label: COLOURS[label] for label in present}
    return {label: COLOURS[rank % len(COLOURS)] for rank, label in enumerate(sorted(present))}


def as_shares(colour: str) -> tuple[float, float, float]:
    """Red, green and blue from 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def text_colour(background: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    red, green, blue = as_shares(background)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#FFFFFF"


def literal(text: str) -> str:
    """Text in which a dollar sign is a dollar sign and not the beginning of a formula."""
    return text.replace("$", r"\$")


def shorten(text: str, most: int) -> str:
    """Text of at most so many letters, cut in the middle, where names differ least."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"
