"""The demo from training to the table, with hardly any training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maqee.compression import CompressOptions, demo
from tests.helpers import invoke

pytestmark = pytest.mark.trains

QUICK = ["stages.0.epochs=1", "stages.0.warmup=0", "stages.1.epochs=0.2"]
FEW = CompressOptions(fit_images=8, samples=60, scored=30)


def test_the_whole_method_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "OPTIONS", FEW)
    output = invoke("demo", *QUICK, "--out", str(tmp_path))
    assert output.exit_code == 0, output.output
    assert "MAQEE chose these bits" in output.output
    assert "simulated" in output.output
    assert f"with a report: {tmp_path / 'compressed' / 'report.html'}" in output.output
    assert "<svg" in (tmp_path / "compressed" / "report.html").read_text()
    result = json.loads((tmp_path / "result.json").read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert list(rows) == [
        "full precision",
        "full precision, exits at 0.8",
        "uniform 4 bits",
        "uniform 4 bits, exits at 0.8",
        "MAQEE",
    ]
    assert rows["full precision"]["share_of_full_precision"] == 1.0
    assert rows["full precision"]["mean_exit"] == rows["uniform 4 bits"]["mean_exit"] == 8.0
    assert rows["MAQEE"]["calibration_accuracy"] >= result["asked_on_calibration"] - 1e-6
    assert result["asked_on_calibration"] <= result["full_precision_on_calibration"]
    assert result["calibration_images"] == 60
    assert 0 <= result["expected_elsewhere"] <= 1
    assert rows["MAQEE"]["bops"] <= rows["uniform 4 bits"]["bops"] * (1 + 1e-9)
    assert (tmp_path / result["plan"]["folder"] / "plan.json").is_file()
