"""Tables are made from saved results: the files in results/ can all be shown, and new results have their shape."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from maqee.apq.road_times import RoadTimes
from maqee.bench.decisions import DecisionComparison
from maqee.bench.engine_speed import EngineComparison
from maqee.bench.fitting import FittingComparison, FittingRow
from maqee.bench.gradients import GradientComparison
from maqee.bench.kernel_results import KernelComparison
from maqee.bench.neighbour import NeighbourTiming
from maqee.bench.plan_results import PlanComparison, PlanRow
from maqee.bench.recovery_step import RecoveryTiming
from maqee.bench.search_step import SearchTiming
from maqee.bench.stream_results import StreamComparison
from maqee.bench.throughput import ThroughputComparison, ThroughputRow
from maqee.cli.output import show
from maqee.evaluation.method_comparison import MethodComparison, MethodRow, MethodSummary
from maqee.io import read_json
from maqee.report import bench_tables
from maqee.report.engine_table import decisions_line, engine_table
from maqee.report.kernel_table import kernel_table
from maqee.report.method_table import method_table
from maqee.report.plan_rows_table import plan_rows_table
from maqee.report.tables import baseline_table, evaluation_table

RESULTS = Path(__file__).parents[2] / "results"
BENCHMARKS: dict[str, tuple[Callable[[dict[str, Any]], str], type | None]] = {
    "decisions": (decisions_line, DecisionComparison),
    "engines": (engine_table, EngineComparison),
    "exits": (bench_tables.exits_table, ThroughputComparison),
    "gradients": (bench_tables.gradients_line, GradientComparison),
    "integers": (bench_tables.integers_line, None),  # its figures are those of a comparison inside it
    "kernels": (kernel_table, KernelComparison),
    "neighbour": (bench_tables.neighbour_line, NeighbourTiming),
    "quantize": (bench_tables.fitting_table, FittingComparison),
    "recovery": (bench_tables.recovery_line, RecoveryTiming),
    "search": (bench_tables.search_step_table, SearchTiming),
    "stream": (bench_tables.stream_table, StreamComparison),
}


def names(kind: type) -> set[str]:
    return {entry.name for entry in fields(kind)}


def fits(result: dict[str, Any], kind: type) -> bool:
    """Whether the file holds what this version writes; what has a default may have come later."""
    later = {entry.name for entry in fields(kind) if entry.default is not MISSING}
    return names(kind) - later <= set(result) <= names(kind)


@pytest.mark.parametrize("path", sorted((RESULTS / "bench").glob("*.json")), ids=lambda path: path.stem)
def test_benchmarks(path: Path) -> None:
    table, kind = BENCHMARKS[path.stem.partition("-")[0]]
    result = read_json(path)
    assert result.get("model", result.get("run", result.get("data", "demo"))) in table(result)
    assert kind is None or fits(result, kind)
    rows = {"exits": ThroughputRow, "quantize": FittingRow}.get(path.stem.partition("-")[0])
    assert rows is None or all(set(row) == names(rows) for row in result["rows"])


def test_throughput() -> None:
    """Executed figures of real images, and of the paper's rows on random weights."""
    for name in ("vit-small.json", "vit-tiny-cpu.json"):
        plans = read_json(RESULTS / "throughput" / name)
        assert fits(plans, PlanComparison)
        assert {row["execution"] for row in plans["rows"]} == {"executed"}
        assert all(set(row) == names(PlanRow) for row in plans["rows"])
        assert plans["data"] in plan_rows_table(plans)
    for path in (RESULTS / "throughput").glob("*times*.json"):
        assert RoadTimes.load(path).exit_blocks == (4, 6, 8, 10, 12)
    for backbone, numbers in itertools.product(("vit-base", "vit-large", "swin-base"), ("w4a4", "bf16")):
        result = read_json(RESULTS / "throughput" / f"{backbone}-{numbers}.json")
        assert fits(result, StreamComparison)
        assert (result["weights"], result["executed"], result["simulated"]) == ("random", True, [])
        assert "random weights" in bench_tables.stream_table(result)


def test_no_result_is_of_uncommitted_sources() -> None:
    """Tables and executed figures: anyone can have the sources that made them."""
    for path in [*(RESULTS / "tables").glob("*.json"), *(RESULTS / "throughput").glob("*.json")]:
        result = read_json(path)
        for made in [result, *result.get("rows", [])]:
            revision = made.get("revision") or made.get("environment", {}).get("revision") or ""
            assert "dirty" not in revision, path


@pytest.mark.parametrize("path", sorted((RESULTS / "quantization").glob("*.json")), ids=lambda path: path.stem)
def test_quantization(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = read_json(path)
    assert set(result) == names(MethodComparison) | {"format", "version", "summary"}
    assert all(set(row) == names(MethodRow) for row in result["rows"])
    assert all(set(row) == names(MethodSummary) for row in result["summary"])
    show(method_table(result))
    assert "erq" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted((RESULTS / "maqee").glob("*recovered.json")), ids=lambda path: path.stem)
def test_evaluations(path: Path) -> None:
    assert "one threshold for all exits" in evaluation_table(read_json(path))


@pytest.mark.parametrize("path", sorted((RESULTS / "maqee").glob("*baselines.json")), ids=lambda path: path.stem)
def test_baselines(path: Path) -> None:
    assert "erq" in baseline_table(read_json(path))
