"""The benchmarks run anywhere; their figures are for the machine at hand, so only their shape is tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from maqee.bench import gradients
from maqee.bench.throughput import bench_exits
from tests.helpers import invoke

pytestmark = pytest.mark.slow


def test_throughput_counts_what_it_ran() -> None:
    result = bench_exits(
        "test-vit", batch_size=32, mean_exits=[2.0, 3.0], precision="fp32", device="cpu", compile=False, repeats=2
    )
    found = [row.mean_exit for row in result.rows]
    assert found == pytest.approx([2.0, 3.0], abs=0.2)  # thresholds are confidences: rounding may hold an image back
    for row in result.rows:
        assert row.share_of_ideal == pytest.approx(row.speedup / row.ideal_speedup)
        assert row.ideal_speedup > 1
    assert result.to_json()["executed"] is True


def test_gradient_check_finds_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A 'compiler' that breaks the backward pass must be noticed, by the figure and by the exit code."""

    def break_backward(modules: list[torch.nn.Module]) -> None:
        def scale(_module: object, grads: Any, _output: object) -> Any:
            return tuple(100 * grad if grad is not None else grad for grad in grads)

        for module in modules:
            module.register_full_backward_hook(scale)

    monkeypatch.setattr(gradients, "compile_each", break_backward)
    out = tmp_path / "gradients.json"
    result = invoke("bench", "gradients", "test-vit", "--precision", "fp32", "--device", "cpu", "--out", str(out))
    assert result.exit_code == 1
    assert "WRONG" in result.output
    assert json.loads(out.read_text())["agree"] is False


def test_gradient_check_passes_when_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "compile_each", lambda modules: None)
    result = invoke("bench", "gradients", "test-swin", "--exits", "vit-ee", "--device", "cpu")
    assert result.exit_code == 0
    assert "they agree" in result.output


def test_bad_precision() -> None:
    assert invoke("bench", "exits", "--precision", "fp8").exit_code == 2
