"""What all figures of a report share: colours that follow the page, sizes that a phone can show, and SVG that is text.

A figure is drawn once, with fixed colours. In the page they become CSS variables, so that dark mode and print need no
second figure; files keep the fixed ones. Nothing in the bytes depends on when or where a figure was drawn.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK, QUIET, LINE, SHADE, PAPER = "#1f2328", "#5f6873", "#d4d9df", "#dce3eb", "#ffffff"
BLUE, ORANGE, GREEN, PURPLE, AMBER = "#0072b2", "#d55e00", "#00866a", "#a8508a", "#b87a00"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, AMBER)
VARIABLES = {
    INK: "ink", QUIET: "quiet", LINE: "line", SHADE: "shade", PAPER: "paper",
    BLUE: "blue", ORANGE: "orange", GREEN: "green", PURPLE: "purple", AMBER: "amber",
}  # fmt: skip

WIDTH = 4.5  # inches: text of ten points is still ten pixels high on a phone
DOTS = 160  # an inch, of PNG files
_STYLE: dict[str, Any] = {
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # names are names, whatever signs are in them
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "maqee",
}


@dataclass(frozen=True)
class Section:
    """A part of the page about one question.

    Attributes:
        name: of files and ids.
        title: the question, or its subject.
        words: what to look at; without a figure, why there is none.
        alt: what the figure shows, for who cannot see it.
        figure: the drawing, if there is one.
    """

    name: str
    title: str
    words: str
    alt: str = ""
    figure: Figure | None = None


def style() -> Any:
    """The context in which figures are drawn and saved."""
    from matplotlib import rc_context

    return rc_context(cast(Any, _STYLE))


def new_figure(height: float) -> Figure:
    """An empty drawing, as wide as all others."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.05)
    return figure


def legend_below(figure: Figure, axes: Axes, columns: int = 2) -> None:
    """Names under the drawing, where they hide nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=1.6, columnspacing=1.4)


def show_percent(axis: Axis) -> None:
    """Shares from 0 to 1 as per cent."""
    axis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")


def settle(figure: Figure) -> None:
    """Put everything in its place once, so that files of all kinds agree and none has to do it again."""
    engine = figure.get_layout_engine()
    if engine is not None:
        with style():
            engine.execute(figure)
        figure.set_layout_engine("none")


def svg_file(figure: Figure) -> str:
    """A drawing as a file of its own."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().decode()
    return re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def png_file(figure: Figure) -> bytes:
    """A drawing as dots on white, without a date or version in it."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=DOTS, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def inline_svg(svg: str, name: str, alt: str) -> str:
    """A file's drawing as a part of a page: colours by variables, the page's font, ids that occur nowhere else."""
    body = svg[svg.index("<svg") :].strip()
    head, rest = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    for colour, variable in VARIABLES.items():
        rest = rest.replace(colour, f"var(--{variable})")
    rest = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', rest)
    rest = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", rest)
    rest = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', rest)
    rest = re.sub(r"<!--.*?-->\s*", "", rest, flags=re.DOTALL)
    title = f'<title id="{name}-title">{escape(alt)}</title>'
    return f'<svg {box[0]} role="img" aria-labelledby="{name}-title" xmlns="http://www.w3.org/2000/svg">{title}{rest}'
