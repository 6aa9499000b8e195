"""`maqee.write_report`: one page about one run or several, and its figures as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maqee.disk import check_writable_file
from maqee.errors import MaqeeError
from maqee.io import write_atomically, write_text
from maqee.report.figures.drawing import Section, inline_svg, png_file, settle, style, svg_file
from maqee.report.figures.exit_histogram import draw_exits
from maqee.report.figures.expected_interval import draw_expected
from maqee.report.figures.flip_matrix import draw_flips
from maqee.report.figures.frontier_curve import draw_frontier, draw_frontiers
from maqee.report.figures.risk_bars import draw_risks
from maqee.report.figures.search_history import draw_history
from maqee.report.figures.threshold_landscape import draw_thresholds
from maqee.report.figures.width_bars import draw_widths
from maqee.report.report_content import RunContent, read_runs
from maqee.report.report_page import RunPage, Shown, render_page
from maqee.report.report_tables import compared
from maqee.runs import PAGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: tuple[Callable[[RunContent], Section], ...] = (  # in the order of the page
    draw_frontier,
    draw_expected,
    draw_exits,
    draw_widths,
    draw_thresholds,
    draw_flips,
    draw_risks,
    draw_history,
)


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        page: the HTML file.
        figures: an SVG and a PNG file for each figure.
    """

    page: Path
    figures: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"page": str(self.page), "figures": [str(path) for path in self.figures]}


def write_report(runs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> Report:
    """Write one HTML file about one run or several; it opens offline, and equal runs give equal bytes.

    Neither the model nor the data are needed: everything comes from files in the folders. The figures lie beside the
    page too, as SVG and PNG, in a folder with the page's name.

    Args:
        runs: a folder written by `maqee compress`, or several to see side by side.
        out: the file; left out, report.html in the folder of one run, or here for several.
    """
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if not folders:
        raise MaqeeError("runs: there is nothing to report: give a folder written by maqee compress.")
    page = Path(out) if out is not None else folders[0] / PAGE if len(folders) == 1 else Path(PAGE)
    if page.suffix != ".html":
        raise MaqeeError(f"out: {page} must be the name of an HTML file: let it end in .html.")
    contents = read_runs(folders)
    check_writable_file(page)
    with style():
        sections = [[draw(run) for draw in FIGURES] for run in contents]
        shared = [draw_frontiers(contents)] if len(contents) > 1 else []
    place, written = page.with_suffix(""), list[Path]()

    def shown(section: Section, key: str) -> Shown:
        name = f"{key}-{section.name}" if key else section.name
        if section.figure is None:
            return Shown(name, section.title, section.words, "")
        settle(section.figure)
        svg = svg_file(section.figure)
        written.extend(_save(section.figure, svg, place / name))
        return Shown(name, section.title, section.words, inline_svg(svg, name, section.alt))

    alone = len(contents) == 1
    together = [shown(section, "") for section in shared]
    pages = [
        RunPage.of(run, [shown(section, "" if alone else run.key) for section in drawn])
        for run, drawn in zip(contents, sections, strict=True)
    ]
    write_text(page, render_page(pages, together, [] if alone else compared(contents)))
    return Report(page, tuple(written))


def _save(figure: Figure, svg: str, stem: Path) -> list[Path]:
    """A drawing as two files."""
    paths = [stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")]
    dots = png_file(figure)
    write_text(paths[0], svg)
    write_atomically(paths[1], lambda file: _write_bytes(file, dots))
    return paths


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)
