"""A table of runs as text, Markdown, LaTeX and HTML, from its JSON alone."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from maqee.errors import suggest
from maqee.report.grid_cells import Cells, table_cells

_LATEX = str.maketrans(
    {"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "±": r"$\pm$"}
)


def render_table(table: dict[str, Any], form: str = "text") -> str:
    """The table of a JSON file as people read it.

    Args:
        table: the values of the file.
        form: text, markdown, latex or html.
    """
    if form not in FORMATS:
        raise suggest(form, list(FORMATS), "format")
    return FORMATS[form](table_cells(table))


def _text(cells: Cells) -> str:
    widths = [max(map(len, column)) for column in zip(cells.columns, *cells.rows, strict=True)]
    over, first = [], 0
    for name, count in cells.groups:
        width = sum(widths[first : first + count]) + 2 * (count - 1)
        over.append(name[:width].center(width))
        first += count

    def line(row: tuple[str, ...]) -> str:
        parts = [
            cell.ljust(width) if index < cells.words else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([cells.caption, "  ".join(over).rstrip(), *map(line, (cells.columns, *cells.rows)), *cells.notes])


def _markdown(cells: Cells) -> str:
    names, first = list(cells.columns), 0
    for group, count in cells.groups:
        for index in range(first, first + count):
            names[index] = f"{names[index]}, {group.split()[0]}" if group else names[index]
        first += count
    rule = ["---" if index < cells.words else "---:" for index in range(len(names))]
    lines = [
        f"| {' | '.join(row)} |"
        for row in (names, rule, *([cell.replace("|", "\\|") for cell in row] for row in cells.rows))
    ]
    return "\n".join([cells.caption, "", *lines, "", *cells.notes])


def _latex(cells: Cells) -> str:
    shape = "l" * cells.words + "r" * (len(cells.columns) - cells.words)
    over = " & ".join(rf"\multicolumn{{{count}}}{{c}}{{{name}}}" for name, count in cells.groups)
    body = [" & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in cells.rows]
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering\small",
            rf"\caption{{{cells.caption.translate(_LATEX)}. {' '.join(cells.notes).translate(_LATEX)}}}",
            rf"\begin{{tabular}}{{@{{}}{shape}@{{}}}}",
            r"\toprule",
            rf"{over} \\",
            " & ".join(name.translate(_LATEX) for name in cells.columns) + r" \\ \midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _html(cells: Cells) -> str:
    def row(tag: str, entries: tuple[str, ...]) -> str:
        kinds = ["" if index < cells.words else ' class="figure"' for index in range(len(entries))]
        inner = "".join(
            f"<{tag}{kind}>{html.escape(entry)}</{tag}>" for kind, entry in zip(kinds, entries, strict=True)
        )
        return f"<tr>{inner}</tr>"

    over = "".join(f'<th colspan="{count}">{html.escape(name)}</th>' for name, count in cells.groups)
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(cells.caption)}</title>',
            "<style>body{font-family:sans-serif}table{border-collapse:collapse}",
            "td,th{padding:.2em .7em;text-align:left}",
            "tr+tr td{border-top:1px solid #ccc}.figure{text-align:right}</style></head><body>",
            f"<table><caption>{html.escape(cells.caption)}</caption>",
            f"<thead><tr>{over}</tr>{row('th', cells.columns)}</thead>",
            "<tbody>",
            *(row("td", entries) for entries in cells.rows),
            "</tbody></table>",
            *(f"<p>{html.escape(note)}</p>" for note in cells.notes),
            "</body></html>",
        ]
    )


FORMATS: dict[str, Callable[[Cells], str]] = {"text": _text, "markdown": _markdown, "latex": _latex, "html": _html}
