"""`maqee profile`, and `maqee compress --cost` with what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maqee.apq import Plan, Trace
from tests.helpers import FIXTURES, invoke

pytestmark = pytest.mark.trains


def test_a_plan_for_measured_time(tmp_path: Path) -> None:
    model, times, out = str(FIXTURES / "digits"), tmp_path / "times.json", tmp_path / "out"
    timed = invoke("profile", model, "--batch", "2", "--repeats", "1", "--device", "cpu", "--out", str(times))
    assert timed.exit_code == 0, timed.output
    exit_ms, head_ms = (json.loads(times.read_text())[name] for name in ("exit_ms", "head_ms"))
    arguments = (model, "--data", "digits", "--samples", "40", "--device", "cpu", "--method", "rtn", "--out", str(out))
    result = invoke("compress", *arguments, "--cost", str(times), "--max-ms", str(exit_ms[1]))
    assert result.exit_code == 0, result.output
    assert "ms on torch, cpu with" in result.output
    plan = Plan.load(out / "plan.json")
    assert (list(plan.options.exit_ms or ()), list(plan.options.head_ms or ())) == (exit_ms, head_ms)
    assert Trace.load(out / "trace.safetensors").head_ms == plan.options.head_ms
    assert {pair for block in plan.bits.blocks for pair in block} == {(6, 8), (8, 8)}  # layers, attention
    assert plan.got.ms is not None
    assert plan.got.ms <= exit_ms[1] * (1 + 1e-9)
    searched = invoke("search", str(out), "--max-ms", str(exit_ms[0] * 1.001), "--json")
    assert json.loads(searched.stdout)["rows"][0]["ms"] <= exit_ms[0] * 1.001


def test_mistakes(tmp_path: Path) -> None:
    arguments = ("compress", str(FIXTURES / "digits"), "--data", "digits", "--out", str(tmp_path / "out"))
    assert "max_ms: the cost is BOPs here" in str(invoke(*arguments, "--max-ms", "1").exception)
    assert "'quick'" in str(invoke("profile", str(FIXTURES / "digits"), "--engine", "quick").exception)
    assert not (tmp_path / "out").exists()
