"""The picture of accuracy against speed: equal results are equal files, and names do not cover each other."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maqee.errors import MaqeeError
from maqee.report.plan_picture import KINDS, LETTER, LINE, Bar, draw_plans, labels, place_labels, save_plan_picture


def result(rows: list[tuple[str, str, float, float]]) -> dict[str, Any]:
    return {
        "data": "digits test",
        "images": 50,
        "batch": 8,
        "precision": "fp32",
        "device": "cpu",
        "rows": [
            {
                "name": f"runs/{name}@torch",
                "kind": kind,
                "accuracy": accuracy,
                "images_per_second": {"median": speed, "low": 0.9 * speed, "high": 1.2 * speed},
            }
            for name, kind, accuracy, speed in rows
        ],
    }


EVERY_KIND = result([(f"costs $5 {n}", kind, 0.8 + n / 100, 100.0 + 50 * n) for n, kind in enumerate(KINDS)])


def test_every_row_is_named_and_every_kind_explained() -> None:
    axes = draw_plans(EVERY_KIND).axes[0]
    assert [text.get_text() for text in axes.texts] == [rf"costs \$5 {n}@torch" for n in range(4)]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [words for _, _, words in KINDS.values()]
    only = draw_plans(result([("one", "float", 0.5, 10.0)])).axes[0]
    assert [text.get_text() for text in only.texts] == ["one@torch"]


def test_a_line_for_each_model_and_short_names_on_it() -> None:
    rows = result(
        [
            ("one", "float", 0.9, 10.0),
            ("one", "early exit", 0.8, 20.0),
            ("two", "low bits", 0.7, 15.0),
            ("two", "low bits and early exit", 0.6, 30.0),
            ("two", "low bits and early exit", 0.65, 25.0),
        ]
    )
    for row, stop in zip(rows["rows"], ("", ":0.8", ":full", "", ":0.6"), strict=True):
        row["name"] += stop
    assert labels(rows["rows"]) == ["one@torch", "0.8", "two@torch, full depth", "two@torch", "0.6"]
    lines = [np.asarray(line.get_data()) for line in draw_plans(rows).axes[0].lines if line.get_linestyle() == "-"]
    assert lines[0].tolist() == [[10.0, 20.0], [90.0, 80.0]]
    assert lines[1].tolist() == [[15.0, 25.0], [70.0, 65.0]]  # without the plan's own thresholds


@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_equal_results_are_equal_files(ending: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}{ending}" for name in "ab"]
    for file in files:
        save_plan_picture(EVERY_KIND, file)
    assert files[0].read_bytes() == files[1].read_bytes()
    with pytest.raises(MaqeeError, match=r"must end in .svg or .png"):
        save_plan_picture(EVERY_KIND, tmp_path / "c.jpg")


def test_names_of_points_in_one_place_stand_apart() -> None:
    bars, texts = [Bar(0.5, 0.52, 0.5)] * 6, ["twelve chars"] * 6
    places = place_labels(bars, texts)
    wide = len(texts[0]) * LETTER
    for (x, y), (other_x, other_y) in combinations(places, 2):
        assert abs(x - other_x) >= wide or abs(y - other_y) >= LINE - 1e-9
    assert all(0 <= x <= 1 - wide and 0 < y < 1 for x, y in places)
