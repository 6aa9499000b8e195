"""The benchmark of a step of the search: its figures add up; how large they are depends on the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from maqee.apq import SearchOptions
from maqee.apq.ladder import LADDER, REFINED
from maqee.apq.options import ERROR_PASSES
from maqee.apq.units import find_space
from maqee.bench import search_step as module
from maqee.bench.search_step import bench_search
from maqee.bench.threshold_search import search_speed
from maqee.compression.sensitivity import LEAST_IMAGES, error_runs
from tests.helpers import invoke


@pytest.fixture(autouse=True)
def _small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "search_speed", lambda samples: search_speed(samples=200, exits=2, repeats=1))


def test_figures_add_up(tmp_path: Path) -> None:
    out = tmp_path / "search.json"
    threads = torch.get_num_threads()
    arguments = ("test-vit", "--samples", "6", "--method", "rtn", "--repeats", "1", "--threads", "1")
    try:
        result = invoke("bench", "search", *arguments, "--device", "cpu", "--out", str(out))
    finally:
        torch.set_num_threads(threads)
    assert result.exit_code == 0, result.output
    for row in ("one iteration", "the whole search", "one step, weights alone", "running the model anew"):
        assert row in result.output
    figures = json.loads(out.read_text())
    assert (figures["blocks"], figures["samples"], figures["scored"], figures["threads"]) == (4, 6, 3, 1)
    assert figures["step"]["passes"] == pytest.approx(2)  # one, and two other widths on half of the images
    assert figures["plain"]["passes"] == 5
    assert figures["iteration"]["passes"] == 1
    for row in (figures["step"], figures["plain"]):
        assert row["of_a_pass"] == pytest.approx(row["seconds"] / figures["pass_seconds"])
    assert {"grid_sweep_seconds", "exact_seconds"} <= set(figures["arrays"])
    assert "environment" not in figures["arrays"]
    assert {"versions", "hardware"} <= set(figures["environment"])


def test_fewer_images_for_single_blocks() -> None:
    figures = bench_search("test-swin", samples=8, scored=2, method="rtn", repeats=1, device="cpu")
    assert figures.step.passes == pytest.approx(1 + 2 * 2 / 8)
    assert figures.plain.passes == 7


def test_a_whole_search_by_count() -> None:
    """Start and widest, the table of errors, and one pass for each allocation that is new and each move."""
    measure = module._make_measure("test-vit", "mlp", 40, 20, "rtn", torch.device("cpu"))
    options = SearchOptions(max_swaps=2, act_max=4, bit_max=4)
    iteration, whole = module.time_search(measure, torch.device("cpu"), options)
    assert iteration.passes == 1
    assert iteration.seconds > 0
    space = find_space(measure.parts, measure.depth, options)
    images = max(LEAST_IMAGES, int(ERROR_PASSES * 40 / (error_runs(space, measure.depth) + 1)))
    table = (error_runs(space, measure.depth) + 1) * min(images, 40) / 40
    rest = whole.passes - table
    assert rest == pytest.approx(round(rest))
    assert 2 + 2 <= round(rest) <= 2 + len(LADDER) + REFINED + 2
    assert whole.seconds > iteration.seconds
    assert whole.of_a_pass > iteration.of_a_pass


def test_mistakes() -> None:
    assert invoke("bench", "search", "--samples", "1").exit_code == 2
    assert invoke("bench", "search", "test-vit", "--method", "rtm").exit_code == 2
