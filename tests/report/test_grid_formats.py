"""A table of runs as text, Markdown, LaTeX and HTML: the same cells, and nothing that breaks the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from maqee.errors import MaqeeError
from maqee.io import read_json
from maqee.report.grid_cells import spread, table_cells
from maqee.report.grid_formats import FORMATS, render_table
from maqee.report.table_words import row_words
from tests.report.saved_tables import figure, make_controlled, make_row, make_table

RESULTS = sorted((Path(__file__).parents[2] / "results" / "tables").glob("*.json"))


TABLE = make_table(
    make_row("erq_1"),
    make_row(
        "maqee",
        method="maqee",
        quantizer="erq",
        recovered=20,
        training_kept=2,
        revision="abc-dirty",
        controlled=make_controlled(7.0, 4e10),
    ),
    missing=["gone"],
)


def test_cells() -> None:
    cells = table_cells(TABLE)
    first, second = cells.rows
    assert all(len(row) == len(cells.columns) == sum(count for _, count in cells.groups) for row in cells.rows)
    assert first[:7] == ("erq_1", "W4A4", "erq", "lgvit", "0.8", "no", "3")
    assert first[7:] == ("N/A", "N/A", "N/A", "8.25 ± 0.50", "(4.500 ± 0.050)e10", "87.50 ± 1.25%")
    assert second[2:6] == ("maqee (erq)", "lgvit", "0.8", "20 steps, kept in 2")
    assert second[7:10] == ("7.00 ± 0.25", "(4.000 ± 0.100)e10", "89.00%")
    assert any("reaches 90.00%" in note for note in cells.notes)
    assert "Rows without a finished run: gone." in cells.notes
    assert "Made with uncommitted changes: maqee." in cells.notes
    assert "simulated" in cells.caption


def test_what_a_row_has_set_for_itself() -> None:
    rows = (
        make_row("plain", settings={}),
        make_row("blocks", settings={"search.grain": "block", "options.samples": 128}),
    )
    cells = table_cells(make_table(*rows))
    assert cells.columns[7] == "own settings"
    assert [row[7] for row in cells.rows] == ["", "grain=block, samples=128"]
    assert all(len(row) == len(cells.columns) == sum(count for _, count in cells.groups) for row in cells.rows)
    assert "grain=block, samples=128" in row_words(rows[1])
    assert "own settings" not in table_cells(make_table(rows[0], make_row("older"))).columns


def test_one_seed_has_no_deviation() -> None:
    assert [spread(figure(1.5), kind) for kind in ("exit", "share", "bops")] == ["1.50", "150.00%", "1.500e0"]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_every_row(form: str) -> None:
    text = render_table(TABLE, form)
    for words in ("maqee (erq)", "8.25", "N/A", "standard"):
        assert words in text


def test_what_would_break_a_page() -> None:
    assert r"erq\_1" in render_table(TABLE, "latex")
    assert r"a\&b" in render_table(TABLE, "latex")
    assert r"87.50 $\pm$ 1.25\%" in render_table(TABLE, "latex")
    assert "digits &lt;test&gt;" in render_table(TABLE, "html")
    lines = render_table(TABLE, "markdown").split("\n")
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_an_unknown_format() -> None:
    with pytest.raises(MaqeeError, match="Unknown format 'markdwn': did you mean markdown"):
        render_table(TABLE, "markdwn")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_saved_tables_can_be_shown(path: Path) -> None:
    table = read_json(path)
    text = render_table(table)
    assert all(row["name"] in text for row in table["rows"])
    assert all("dirty" not in row["revision"] for row in table["rows"])
