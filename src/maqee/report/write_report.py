"""`maqee.write_report`: one page about one run, several, or a table, and its figures as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maqee.disk import check_writable_file
from maqee.errors import MaqeeError
from maqee.io import write_text
from maqee.report.figure_files import FigureFiles
from maqee.report.figures.drawing import Section, style
from maqee.report.figures.exit_histogram import draw_exits
from maqee.report.figures.expected_interval import draw_expected
from maqee.report.figures.flip_matrix import draw_flips
from maqee.report.figures.frontier_curve import draw_frontier, draw_frontiers
from maqee.report.figures.risk_bars import draw_risks
from maqee.report.figures.search_history import draw_history
from maqee.report.figures.threshold_landscape import draw_thresholds
from maqee.report.figures.width_bars import draw_all_widths, draw_widths
from maqee.report.finished_table import YAML_ENDINGS, read_finished
from maqee.report.report_content import RunContent, read_runs
from maqee.report.report_page import RunPage, Together, render_page
from maqee.report.write_table_report import write_table_report
from maqee.runs import PAGE

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
    """Write one HTML file about one run, several, or a table; it opens offline, and equal inputs give equal bytes.

    Neither the model nor the data are needed: everything comes from files in the folders. The figures lie beside the
    page too, as SVG and PNG, in a folder with the page's name.

    Args:
        runs: a folder written by `maqee compress`, or several to see side by side; or one table, the JSON file of
            `maqee table` or the YAML file that it was made from.
        out: the file; left out, report.html in the folder of one run, or here for several, and for a table the name of
            its JSON file with .html.
    """
    paths = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if not paths:
        raise MaqeeError("runs: there is nothing to report: give a folder written by maqee compress, or a table.")
    files = [path for path in paths if _is_table(path)]
    if files and len(paths) > 1:
        raise MaqeeError(f"{files[0]} is a table, which has a page of its own: give it alone.")
    if files:
        table = read_finished(files[0])
        page = _page(out, table.path.with_suffix(".html"))
        return Report(page, write_table_report(table, page))
    page = _page(out, paths[0] / PAGE if len(paths) == 1 else Path(PAGE))
    return Report(page, _write_runs(read_runs(paths), page))


def _write_runs(runs: list[RunContent], page: Path) -> tuple[Path, ...]:
    """The page about runs; the files of its figures are handed back."""
    check_writable_file(page)
    alone = len(runs) == 1
    with style():
        sections = [[draw(run) for draw in FIGURES] for run in runs]
        shared = [] if alone else [draw_frontiers(runs), draw_all_widths(runs)]
    files = FigureFiles(page.with_suffix(""))
    together = None if alone else Together.of(runs, [files.show(section) for section in shared])
    pages = [
        RunPage.of(run, [files.show(section, "" if alone else run.key) for section in drawn])
        for run, drawn in zip(runs, sections, strict=True)
    ]
    write_text(page, render_page(pages, together))
    return tuple(files.written)


def _is_table(path: Path) -> bool:
    return path.suffix in (".json", *YAML_ENDINGS) and not path.is_dir()


def _page(out: str | Path | None, usual: Path) -> Path:
    page = usual if out is None else Path(out)
    if page.suffix != ".html":
        raise MaqeeError(f"out: {page} must be the name of an HTML file: let it end in .html.")
    return page
