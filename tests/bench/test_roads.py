"""Times of the roads between exits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maqee.bench.roads import profile, road_shares, saved_by_closing
from maqee.errors import MaqeeError
from maqee.report.road_table import road_table
from maqee.runtime import use_cuda_graphs
from tests.report.makers import write_run
from tests.runtime.makers import ready, segmentation_model, small_model


def test_every_road_is_timed() -> None:
    times = profile(ready(small_model()), batch=2, repeats=1)
    assert times.exit_blocks == (1, 2, 4)
    assert len(times.road_ms) == 3
    assert min(times.road_ms) > 0
    assert len(times.head_ms) == 2
    assert all(0 <= head <= road for head, road in zip(times.head_ms, times.road_ms, strict=False))
    assert (times.engine, times.batch) == ("torch", 2)
    assert sum(times.shares) == pytest.approx(1)


def test_recorded_roads_on_a_gpu(gpu: torch.device) -> None:
    model = small_model().to(gpu)
    use_cuda_graphs(model)
    times = profile(ready(model), batch=4, repeats=2)
    assert (len(times.road_ms), len(times.head_ms)) == (3, 2)
    assert min(times.road_ms) > 0


def test_heads_that_read_earlier_blocks() -> None:
    assert len(profile(ready(segmentation_model(), "segmentation"), batch=1, repeats=1).road_ms) == 3


def test_pairs_of_widths_of_other_tasks(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "segmentation", {"name": "camvid"}, "test-vit", "segformer")
    times = profile(run, bits=("W6A8", "W4A4"), method="rtn", batch=1, repeats=1, device="cpu", show=False)
    assert {pair.bits for pair in times.pairs} == {"W4A4", "W6A8"}
    assert times.exit_ms == times.pairs[0].exit_ms  # the fastest
    assert times.pairs[0].exit_ms[-1] <= times.pairs[1].exit_ms[-1]


def test_bits_are_for_folders() -> None:
    with pytest.raises(MaqeeError, match="bits: a model that was loaded has its own"):
        profile(ready(small_model()), bits=("W4A4",))


def test_what_closing_saves_by_hand() -> None:
    """2 + 3 ms or 4 over the exit: 1; noise may seem to save less than nothing, or more than there is."""
    assert saved_by_closing([2.0, 3.0, 5.0], [4.0, 8.5]) == (1.0, 0.0)
    assert saved_by_closing([2.0, 3.0], [1.0]) == (2.0,)
    assert saved_by_closing([2.0], []) == ()


def test_shares_by_hand() -> None:
    """Exits after blocks 1, 2 and 4 of 4: the last road has two blocks, the first the patches as well."""
    model = small_model()
    macs = {part.name: part.macs for part in model.parts()}
    whole = sum(macs.values())
    block = sum(count for name, count in macs.items() if name.startswith("block 1 "))
    heads = [part.macs for part in model.parts() if part.kind == "head"]
    [patch] = [part.macs for part in model.parts() if part.kind == "patch"]
    [classifier] = [part.macs for part in model.parts() if part.kind == "classifier"]
    expected = (patch + block + heads[0], block + heads[1], 2 * block + classifier)
    assert road_shares(model) == pytest.approx([count / whole for count in expected])


def test_the_table() -> None:
    lines = road_table(profile(ready(small_model()), batch=2, repeats=1).to_json()).splitlines()
    assert lines[0].startswith("model on torch, cpu with")
    assert [line.split()[0] for line in lines[2:]] == ["1", "2", "4"]
