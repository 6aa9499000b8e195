"""Tables of segmentation and detection: the task and the data are the run's own, and the metric has its own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from maqee.evaluation.trained import evaluate_trained
from maqee.tables.table_run import table
from tests.compression.dense import detection, segmentation
from tests.tables.makers import QUICK, write_table

pytestmark = pytest.mark.trains

ROWS = {
    "bare": {"method": "float", "exits": "own", "thresholds": "none"},
    "float": {"method": "float", "exits": "own"},
    "rtn": {"method": "rtn", "exits": "own", "bits": "W4A4", "recovered": 1},
    "maqee": {"method": "maqee", "exits": "own", "bits": "both", "quantizer": "rtn"},
}
COMPRESS = {
    "budget": {"max_drop": 1.0},
    "search": QUICK,
    "options": {"samples": 8, "fit_images": 4, "recovery": {"batch_size": 4}},
}


@pytest.mark.parametrize("task", ["segmentation", "detection"])
def test_dense_tasks(task: str, tmp_path: Path) -> None:
    miniature = segmentation(tmp_path) if task == "segmentation" else detection(tmp_path)
    path = write_table(
        tmp_path, models={"own": str(miniature.run)}, data=None, rows=ROWS, seeds=1, target=0.0, compress=COMPRESS
    )
    done = table(path, runs=tmp_path / "runs", data_root=miniature.root, device="cpu", show=False)
    assert done.failures == {}
    assert (done.facts["task"], len(done.rows)) == (task, 4)
    assert done.facts["metric"] != "accuracy"
    full = evaluate_trained(miniature.run, data_root=miniature.root, device="cpu").exits[-1]
    bare = done.rows[0]
    assert full.macs is not None
    assert bare["accuracy"]["mean"] == pytest.approx(full.metrics[done.facts["metric"]], abs=1e-6)
    assert bare["bops"]["mean"] == pytest.approx(full.macs * 32**2, rel=1e-6)  # of early exits there are none left
    for row in done.rows:
        assert 0 <= row["accuracy"]["mean"] <= 1
        assert row["controlled"]["target"] == 0  # anything will do
        assert row["controlled"]["mean_exit"]["mean"] <= row["mean_exit"]["mean"]  # so the cheapest policy is chosen
