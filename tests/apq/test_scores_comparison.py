"""The tool that compares smoothed with counted scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.apq.makers import make_trace
from tools.compare_scores import SHARES, main


def test_every_way_at_every_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    make_trace(80).save(tmp_path / "run" / "trace.safetensors")
    out = tmp_path / "scores.json"
    main([str(tmp_path / "run"), "--repeats", "2", "--out", str(out)])
    [run] = json.loads(out.read_text())["runs"]
    assert (run["images"], len(run["rows"])) == (80, len(SHARES))
    for row in run["rows"]:
        assert set(row["metric"]) == {"smoothed", "counted", "shared"}
        assert row["gained"] == pytest.approx(row["metric"]["smoothed"] - row["metric"]["counted"])
        assert all(bops < 1.3 * row["max_bops"] for bops in row["bops"].values())
    costs = [row["max_bops"] for row in run["rows"]]
    assert costs == sorted(costs)
    assert "80 images, half of which choose" in capsys.readouterr().out
