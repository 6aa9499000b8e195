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
    assert set(plan.bits.heads or (plan.bits.head,)) == {(6, 8)}
    assert plan.got.ms is not None
    assert plan.got.ms <= exit_ms[1] * (1 + 1e-9)
    searched = invoke("search", str(out), "--max-ms", str(exit_ms[0] * 1.001), "--json")
    assert json.loads(searched.stdout)["rows"][0]["ms"] <= exit_ms[0] * 1.001


def test_pairs_of_widths_that_were_timed(tmp_path: Path) -> None:
    """A trained run is quantized with each; a search then takes the pair that is best."""
    model, times, out = str(FIXTURES / "digits"), tmp_path / "times.json", tmp_path / "out"
    options = ("--batch", "2", "--repeats", "1", "--device", "cpu", "--method", "rtn")
    timed = invoke("profile", model, "--bits", "W6A8,W4A4", *options, "--out", str(times))
    assert timed.exit_code == 0, timed.output
    pairs = dict(json.loads(times.read_text())["pairs"])
    assert set(pairs) == {"W4A4", "W6A8"}
    shown = [line.split()[0] for line in timed.stdout.splitlines()[2:4]]
    assert shown == sorted(pairs, key=lambda bits: pairs[bits][-1])
    arguments = (model, "--data", "digits", "--samples", "40", "--device", "cpu", "--method", "rtn", "--out", str(out))
    result = invoke("compress", *arguments, "--cost", str(times), "--max-drop", "0.05")
    assert result.exit_code == 0, result.output
    plan = Plan.load(out / "plan.json")
    assert {pair.bits: list(pair.exit_ms) for pair in plan.options.timed_pairs} == pairs
    assert {step.position.bits.blocks[0].fc1 for step in plan.history} == {(4, 4), (6, 8)}
    (chosen,) = {block.fc1 for block in plan.bits.blocks}
    assert list(Trace.load(out / "trace.safetensors").exit_ms or ()) == pairs["W{}A{}".format(*chosen)]
    compressed = invoke("profile", str(out), "--bits", "W4A4", *options)
    assert "holds a compressed model, which has its own: give a trained run" in str(compressed.exception)


def test_mistakes(tmp_path: Path) -> None:
    arguments = ("compress", str(FIXTURES / "digits"), "--data", "digits", "--out", str(tmp_path / "out"))
    assert "max_ms: the cost is BOPs here" in str(invoke(*arguments, "--max-ms", "1").exception)
    assert "'quick'" in str(invoke("profile", str(FIXTURES / "digits"), "--engine", "quick").exception)
    assert not (tmp_path / "out").exists()
