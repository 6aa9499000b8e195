"""One page about a table, and its figures as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from maqee.disk import check_writable_file
from maqee.io import write_text
from maqee.report.figure_files import FigureFiles
from maqee.report.figures.controlled_bars import draw_controlled
from maqee.report.figures.drawing import Section, style
from maqee.report.figures.table_curves import draw_curves
from maqee.report.figures.table_frontier import draw_table_bops, draw_table_exits
from maqee.report.finished_table import FinishedTable
from maqee.report.page_template import fill_template
from maqee.report.table_page import TablePage

TABLE_FIGURES: tuple[Callable[[FinishedTable], Section], ...] = (  # in the order of the page
    draw_table_bops,
    draw_table_exits,
    draw_curves,
    draw_controlled,
)


def write_table_report(table: FinishedTable, page: Path) -> tuple[Path, ...]:
    """Write the page; the files of its figures are handed back.

    Args:
        table: what it is about.
        page: the HTML file.
    """
    check_writable_file(page)
    with style():
        sections = [draw(table) for draw in TABLE_FIGURES]
    files = FigureFiles(page.with_suffix(""))
    content = TablePage.of(table, [files.show(section) for section in sections])
    write_text(page, fill_template("table.html.jinja", page=content))
    return tuple(files.written)
