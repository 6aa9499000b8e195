"""The benchmark of streams counts what it ran; its times are for the machine at hand, so only their shape is tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from maqee.bench.streams import bench_stream
from maqee.errors import MaqeeError
from tests.helpers import invoke
from tests.runtime.makers import small_model, write_compressed_run, write_trained_run


def test_all_ways_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "stream.json"
    command = "bench stream test-vit --no-compile --device cpu --images 40 --mean-exit 2,3 --repeats 1 --out"
    result = invoke(*command.split(), str(out))
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert (found["images"], found["batch_size"], found["precision"], found["executed"]) == (40, 8, "fp32", True)
    assert [row["mean_exit"] for row in found["rows"]] == pytest.approx([2.0, 3.0], abs=0.3)
    for row in found["rows"]:
        assert sum(row["exit_mass"]) == pytest.approx(1)
        assert [way["name"] for way in row["ways"]] == ["full depth", "run", "stream"]
        full = row["ways"][0]
        assert full["share_of_ideal"] == pytest.approx(row["macs_share"])  # by the definition of the ideal
        for way in row["ways"]:
            assert 0 < way["p50_ms"] <= way["p95_ms"] <= way["p99_ms"]
            assert way["share_of_ideal"] == pytest.approx(way["images_per_second"] / row["ideal_images_per_second"])
        assert f"{row['macs_share']:.1%}" in result.output


def test_a_compressed_run_on_another_engine(tmp_path: Path) -> None:
    """Full depth is then the network that never stops, heads and all, so that never stopping costs all of it."""
    images = torch.randn(16, 1, 16, 16)
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    found = bench_stream(
        folder, engine="reference", images=12, batch_size=4, mean_exits=(2.0,), device="cpu", repeats=1
    )
    assert (found.engine, found.compiled, found.model) == ("reference", False, "run")
    assert 0 < found.rows[0].macs_share < 1


def test_what_it_cannot_measure(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="engine reference runs what maqee wrote"):
        bench_stream("test-vit", engine="reference", device="cpu")
    folder = write_trained_run(tmp_path / "run", small_model())
    assert invoke("bench", "stream", str(folder), "--mean-exit", "two", "--device", "cpu").exit_code == 2
