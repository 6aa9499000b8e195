"""The page about a table: rows with their spread, the best ones marked, commands and settings; and lacks are said."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from maqee.errors import MaqeeError
from maqee.report.best_rows import apart, cheapest_controlled, most_accurate, undominated
from maqee.report.figures.table_curves import draw_curves, rows_with_curves
from maqee.report.finished_table import read_finished
from maqee.report.table_page import table_lines
from maqee.report.table_words import controlled_words, row_words, settings, summary, tiles
from maqee.report.write_report import write_report
from tests.helpers import invoke
from tests.report.page_parser import Page
from tests.report.saved_tables import figure, make_curve, make_row, several_rows, write_saved_table

FIGURES = ("bops", "mean-exit", "curves", "controlled")
DIGITS = Path(__file__).parents[2] / "results" / "tables" / "digits.json"


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


def test_rankings_leave_full_precision_out() -> None:
    rows = several_rows()
    assert names(undominated(rows)) == ["maqee"]
    assert names(most_accurate(rows)) == ["maqee", "erq_1", "repq"]
    assert names(cheapest_controlled(rows, "bops")) == ["maqee", "erq_1"]
    assert names(undominated(rows[:1])) == ["plain"]  # nothing else to compare


@pytest.mark.parametrize(
    ("gap", "one", "other", "expected"),
    [
        (0.1, 0.03, 0.04, False),  # two deviations of the difference are 0.1
        (0.11, 0.03, 0.04, True),
        (0.0, 0.0, 0.0, False),
        (0.001, 0.0, 0.0, True),
        (0.5, None, 0.1, None),
    ],
)
def test_more_than_chance(gap: float, one: float | None, other: float | None, expected: bool | None) -> None:
    assert apart(figure(0.8 + gap, one), figure(0.8, other)) is expected
    assert apart(figure(0.8, other), figure(0.8 + gap, one)) is expected


def test_words(tmp_path: Path) -> None:
    table = read_finished(write_saved_table(tmp_path / "t.json"))
    assert summary(table) == (
        "Of 3 quantized rows, maqee has the best accuracy, 92.00 ± 1.00% (simulated), at 4.20% of the BOPs of full "
        "precision and mean exit 8.25 ± 0.50; the next, erq_1, is 4.50 points behind, beyond two standard deviations. "
        "The target of 90.00% is reached for the fewest BOPs by maqee: 4.00% of the BOPs of full precision, mean exit "
        "7.00 ± 0.25."
    )
    assert [tile.value for tile in tiles(table)] == ["92.00%", "7.00", "3", "360"]
    assert row_words(table.rows[3]) == (
        "W4A4 · maqee on erq · exits lgvit · thresholds 0.8 · 20 steps of training, kept in 2 · 3 seeds · simulated"
    )
    assert row_words(table.rows[0]) == "FP32 · float · no exits · 3 seeds · simulated"
    assert "2 of 3 quantized rows do in every seed" in controlled_words(table)
    assert ("hardware", "cores 2") in settings(table)


def test_words_where_there_is_little(tmp_path: Path) -> None:
    alone = make_row("only", method="float", seeds=1, accuracy=figure(0.5), bops=figure(1e9), mean_exit=figure(3.0))
    other = make_row("less", seeds=1, accuracy=figure(0.4), execution="executed", revision="abc-dirty")
    table = read_finished(write_saved_table(tmp_path / "t.json", alone, missing=["gone"]))
    assert (
        summary(table)
        == "Of 1 row, only has the best accuracy, 50.00% (simulated), at 1.000e+09 BOPs and mean exit 3.00."
    )
    assert "No row reaches the target" in controlled_words(table)
    assert ("rows without a finished run", "gone") in settings(table)
    both = read_finished(
        write_saved_table(tmp_path / "t.json", alone, other, make_row("more", seeds=1, accuracy=figure(0.6)))
    )
    assert "20.00 points behind, by one seed" in summary(both)
    assert ("figures are", "executed and simulated") in settings(both)


def test_curves_of_the_best_row_of_each_kind(tmp_path: Path) -> None:
    rows = [
        *several_rows(),
        make_row("erq_2", accuracy=figure(0.9, 0.01), curve=make_curve(0.9, 4.4e10)),
        make_row("best", bits="best W4A5", curve=make_curve(0.91, 4.4e10, seeds=2)),
        make_row("erq_trained", accuracy=figure(0.86, 0.01), recovered=20, curve=make_curve(0.86, 4.4e10)),
    ]
    assert names(rows_with_curves(rows)) == ["maqee", "erq_2", "best", "erq_trained"]
    section = draw_curves(read_finished(write_saved_table(tmp_path / "t.json", *rows)))
    assert section.figure is not None
    assert "moved by -0.2 to +0" in section.words
    assert "erq_2 from 88.00% to 90.00%" in section.alt
    [axes] = section.figure.axes
    assert [line.get_label() for line in axes.lines] == ["maqee", "erq_2", "best (2 of 3 seeds)", "erq_trained"]
    assert len(axes.collections) == 4  # the bands
    older = read_finished(write_saved_table(tmp_path / "t.json", make_row("erq_1")))
    assert (draw_curves(older).figure, "of a version" in draw_curves(older).words) == (None, True)


def test_the_best_are_marked_where_best_means_something(tmp_path: Path) -> None:
    rows = several_rows()
    rows[1]["controlled"]["mean_exit"] = rows[3]["controlled"]["mean_exit"]  # equal ones are both the best
    lines = table_lines(read_finished(write_saved_table(tmp_path / "t.json", *rows)))
    marked = {(line.name, cell.label) for line in lines for cell in line.cells if cell.best}
    assert marked == {
        ("maqee", "standard: accuracy"),
        ("maqee", "controlled: mean exit"),
        ("erq_1", "controlled: mean exit"),
        ("maqee", "controlled: BOPs"),
    }
    assert [line.name for line in lines if line.on_frontier] == ["maqee"]
    assert [cell.again for cell in lines[2].cells] == [False, True, True, False, False, False]


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    written = write_report(write_saved_table(tmp_path / "t.json"))
    text = written.page.read_text()
    page = Page(text)
    assert written.page == tmp_path / "t.html"
    assert {*FIGURES, "rows", "commands", "settings"} <= set(page.ids)
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert page.tags["svg"] == len(FIGURES)
    for words in (
        "a&amp;b",
        "digits &lt;test&gt;",
        "87.50 ± 1.25%",
        "maqee table t.yaml --only erq_1",
        "abc",
        "cores 2",
    ):
        assert words in text
    assert text.count("imulated") > 6
    assert {link for link in page.links if not link.startswith(("#", "data:"))} == set()
    assert page.tags["script"] == 0
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert re.findall(r"#[0-9a-f]{6}\b", drawings) == []  # every colour follows the page
    assert sorted(path.name for path in written.figures) == sorted(
        f"{n}.{kind}" for n in FIGURES for kind in ("svg", "png")
    )
    for path in written.figures:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert picture.width == 720


@pytest.mark.slow
def test_equal_tables_give_equal_bytes(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = shutil.copy(DIGITS, tmp_path / name / "digits.json")
        written = write_report(path)
        found.append([file.read_bytes() for file in (written.page, *written.figures)])
    assert found[0] == found[1]


@pytest.mark.slow
def test_named_by_its_yaml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("name: mine # of the table\n")
    result = invoke("report", "mine.yaml")
    assert result.exit_code == 2
    assert "run maqee table mine.yaml" in str(result.exception)
    write_saved_table(tmp_path / "results" / "tables" / "mine.json")
    result = invoke("report", "mine.yaml", "--out", "page.html")
    assert result.output == "Report written to page.html, its figures to page.\n"
    assert "name: mine # of the table" in (tmp_path / "page.html").read_text()


def test_mistakes(tmp_path: Path) -> None:
    table = write_saved_table(tmp_path / "t.json")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "empty.json").write_text('{"table": "t", "rows": [], "missing": [], "environment": {}}')
    for given, hint in (
        ([table, tmp_path], "give it alone"),
        ([tmp_path / "other.json"], "is no table"),
        ([tmp_path / "empty.json"], "has no rows"),
        ([tmp_path / "none.json"], "does not exist"),
        ([tmp_path / "none.yaml"], "does not exist"),
        ([], "nothing to report"),
    ):
        with pytest.raises(MaqeeError, match=hint):
            write_report(given)
    with pytest.raises(MaqeeError, match="let it end in"):
        write_report(table, tmp_path / "page.pdf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.json", "other.json", "t.json"]
