"""The cost of fitting: every figure is there and adds up; how large it is depends on the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from maqee.bench.fitting import bench_quantize, kept_bytes, measure, peak_bytes
from tests.helpers import invoke


@pytest.mark.process
@pytest.mark.slow
def test_figures_add_up(tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    arguments = ("test-vit", "--method", "rtn", "--images", "4", "--threads", "1", "--repeats", "1")
    result = invoke("bench", "quantize", *arguments, "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "passes" in result.output
    assert "all 24 pairs of W3..6 and A3..8" in result.output
    figures = json.loads(out.read_text())
    assert [row["method"] for row in figures["rows"]] == ["rtn"]
    assert figures["threads"] == 1
    assert {"versions", "hardware"} <= set(figures["environment"])
    for row in figures["rows"]:
        assert row["passes"] == pytest.approx(row["fit_seconds"] / row["pass_seconds"], rel=1e-3)
        assert row["peak_ratio"] == pytest.approx(row["peak_bytes"] / figures["float_pass"]["peak_bytes"], abs=1e-3)
        extra = row["peak_bytes"] - figures["float_pass"]["peak_bytes"]
        assert row["extra_per_model_bytes"] == pytest.approx(extra / figures["model_bytes"], abs=1e-3)
        assert row["all_pairs_multiple"] == pytest.approx(row["all_pairs_seconds"] / row["fit_seconds"], rel=1e-2)
        assert row["all_pairs_peak_bytes"] >= row["peak_bytes"]
        assert row["all_pairs_per_model_bytes"] > 1
        assert row["set_bits_ms"] > 0
        assert row["simulated"] > 0


def test_one_process_by_hand() -> None:
    job = {"model": "test-vit", "bits": "W4A4", "images": 2, "threads": None, "repeats": 1, "method": None}
    alone = measure(job)
    assert alone["fit_seconds"] is None
    assert measure({**job, "method": "rtn"})["fit_seconds"] > 0
    assert 10 * 2**20 < alone["peak_bytes"] <= peak_bytes()
    assert 4 * 20_000 < alone["model_bytes"] < 4 * 200_000


@pytest.mark.process
def test_mistakes() -> None:
    assert invoke("bench", "quantize", "--method", "rtm").exit_code == 2
    assert invoke("bench", "quantize", "--bits", "4").exit_code == 2
    assert invoke("bench", "quantize", "--threads", "0").exit_code == 2
    result = invoke("bench", "quantize", "vit-bse", "--method", "rtn")
    assert result.exit_code == 2
    assert "did you mean vit-base" in str(result.exception)


def test_all_methods_when_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from maqee.bench import fitting as quantize_speed
    from maqee.quant import methods

    measured = {
        "pass_seconds": 1.0,
        "fit_seconds": 2.0,
        "simulated_seconds": 1.5,
        "peak_bytes": 200,
        "model_bytes": 100,
        "threads": 1,
        "all_pairs_seconds": 6.0,
        "all_pairs_peak_bytes": 300,
        "kept_bytes": 450,
        "set_bits_ms": 0.1,
    }
    monkeypatch.setattr(quantize_speed, "_in_new_process", lambda job: measured)
    rows = bench_quantize("test-vit", show=False).rows
    assert [row.method for row in rows] == methods.names()
    assert (rows[0].passes, rows[0].simulated) == (2.0, 1.5)
    assert rows[0].all_pairs_multiple == 3.0
    assert rows[0].all_pairs_per_model_bytes == 4.5


def test_shared_memory_counts_once() -> None:
    model = nn.Linear(3, 2)  # 8 numbers
    assert kept_bytes(model) == 32
    model.register_buffer("again", model.weight.data)
    model.register_buffer("more", torch.zeros(5, dtype=torch.uint8))
    assert kept_bytes(model) == 37
