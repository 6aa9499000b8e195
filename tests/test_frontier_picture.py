"""The picture of the README is drawn from the results as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import draw_frontier

ROOT = Path(__file__).parents[1]


def test_it_shows_the_results_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("one.svg", "two.svg"):
        draw_frontier.main(tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    saved = (ROOT / draw_frontier.PICTURE).read_text()
    assert words(drawn) == words(saved)  # coordinates depend on the version of matplotlib
    assert marks(drawn) == marks(saved)
    assert "simulated" in drawn


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
