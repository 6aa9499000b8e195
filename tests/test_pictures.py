"""The pictures of the README and of the results are drawn from the results as they are."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tools import draw_camvid, draw_frontier, draw_throughput

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("tool", "how"), [(draw_frontier, "simulated"), (draw_camvid, "simulated"), (draw_throughput, "executed")]
)
def test_they_show_the_results_as_they_are(
    tool: ModuleType, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("one.svg", "two.svg"):
        tool.main(tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    saved = (ROOT / tool.PICTURE).read_text()
    assert words(drawn) == words(saved)  # coordinates depend on the version of matplotlib
    assert marks(drawn) == marks(saved)
    assert how in drawn


def words(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def marks(svg: str) -> int:
    return svg.count("<use ")


def test_points_are_shares_of_full_precision() -> None:
    assert draw_frontier.point({"share_of_full_precision": 0.25, "accuracy": 0.5, "bops": 7}) == (25.0, 0.5)


def test_the_line_leaves_out_plans_that_cost_more_for_less() -> None:
    assert draw_frontier.undominated([(1.0, 0.5), (2.0, 0.7), (3.0, 0.6), (4.0, 0.8)]) == [
        (1.0, 0.5),
        (2.0, 0.7),
        (4.0, 0.8),
    ]


def test_a_band_over_seeds_by_hand() -> None:
    costs, low, middle, high = draw_frontier.band([[(1.0, 0.5), (3.0, 0.7)], [(2.0, 0.5), (4.0, 0.9)]])
    assert costs == [2.0, 3.0]  # what both cover
    assert low == pytest.approx([0.5, 0.7])
    assert middle == pytest.approx([0.55, 0.7])
    assert high == pytest.approx([0.6, 0.7])


def test_several_seeds_in_one_picture() -> None:
    rows = [{"share_of_full_precision": 0.03 + 0.01 * step, "accuracy": 0.7 + 0.05 * step} for step in range(3)]
    worse = [{**row, "accuracy": row["accuracy"] - 0.01} for row in rows]
    envelope = {"full_precision": [{"accuracy": 0.88}], "envelope": rows}
    trained = [draw_frontier.point(rows[0])]
    figure = draw_frontier.draw([{"plans": rows}, {"plans": worse}], envelope, trained, trained)
    (axes,) = figure.axes
    assert len(axes.collections) == 1
    legend = axes.get_legend()
    assert legend is not None
    assert "maqee: plans of one search a seed (2 seeds), no training" in [
        text.get_text() for text in legend.get_texts()
    ]
