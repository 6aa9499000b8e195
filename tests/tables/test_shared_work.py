"""What is done once for several runs, days and machines: data, passes over test images, searches before training."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import maqee
from maqee.apq import SearchOptions, Trace
from maqee.compression.baseline_model import fit_best_pair
from maqee.compression.model_measure import ModelMeasure
from maqee.data import Splits
from maqee.exits import load_with_exits
from maqee.io import read_json
from maqee.runs import PLAN, SEARCH, TRACE, WEIGHTS, DataSource
from maqee.tables import opened_data, prepare
from maqee.tables.cases import case_of
from maqee.tables.grid import make_grid
from maqee.tables.known_answers import memory_of
from maqee.tables.opened_data import open_once
from maqee.tables.prepare import open_case
from maqee.tables.table_file import read_table
from maqee.tables.table_run import table
from maqee.tables.work import ROW, Place
from maqee.widths import BitSettings
from tests.helpers import FIXTURES
from tests.tables.makers import write_table

ROWS = {
    "float": {"method": "float", "exits": "mlp"},
    "rtn": {"method": "rtn", "exits": "mlp", "bits": "W4A4"},
    "shared": {"method": "rtn", "exits": "mlp", "bits": "W4A4", "thresholds": "shared"},
}


def test_rows_of_a_model_share_its_pass(tmp_path: Path) -> None:
    grid = make_grid(read_table(write_table(tmp_path, rows=ROWS)))
    passes = [work for work in grid if work.kind == "pass"]
    assert len(passes) == 2 + 1  # uniform bits for two seeds, and full precision for all of them
    readers = [work.record for work in grid if work.kind == "row"]
    assert sorted(map(readers.count, {work.folder for work in passes})) == [2, 2, 2]
    [float_pass] = [work for work in passes if not work.needs]
    assert "seed" not in float_pass.folder


@pytest.mark.trains
def test_one_day_and_another_and_on_another_machine(tmp_path: Path) -> None:
    model, runs = tmp_path / "here" / "digits", tmp_path / "here" / "runs"
    shutil.copytree(FIXTURES / "digits", model)
    path = write_table(tmp_path, rows=ROWS, models={"mlp": str(model)})
    first = table(path, runs=runs, seeds=1, only=["rtn"], device="cpu", show=False)
    assert len(first.computed) == 3
    second = table(path, runs=runs, seeds=2, device="cpu", show=False)
    assert not {*first.computed} & {*second.computed}
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = write_table(tmp_path, rows=ROWS, models={"mlp": str(tmp_path / "there" / "digits")})
    third = table(moved, runs=tmp_path / "there" / "runs", seeds=3, device="cpu", show=False)
    assert {folder.partition("-seed")[2][0] for folder in third.computed} == {"2"}  # nothing of seeds 0 and 1
    assert [row["seeds"] for row in third.rows] == [3, 3, 3]
    for part in ("models", "passes"):
        shutil.rmtree(tmp_path / "there" / "runs" / part)
    assert table(moved, runs=tmp_path / "there" / "runs", seeds=3, device="cpu", show=False).computed == ()
    every = table(moved, runs=tmp_path / "all at once", seeds=3, device="cpu", show=False)
    assert every.rows == third.rows


@pytest.mark.trains
def test_training_goes_on_from_the_search_without_it(tmp_path: Path) -> None:
    """To the bit what a search and a training in one go give."""
    rows = {"trained": {"method": "maqee", "exits": "mlp", "bits": "both", "quantizer": "rtn", "recovered": 2}}
    path = write_table(tmp_path, rows=rows, target=0.5)
    done = table(path, runs=tmp_path / "runs", device="cpu", seeds=1, show=False)
    assert (done.failures, [folder.partition("/")[0] for folder in done.computed[:2]]) == ({}, ["models", "models"])
    model = tmp_path / "runs" / "models" / read_json(next((tmp_path / "runs").glob("trained-seed0-*")) / ROW)["model"]
    config = read_table(path).config("trained", 0)
    maqee.compress(
        FIXTURES / "digits",
        data="digits",
        budget=config.budget,
        search_options=config.search,
        options=config.options,
        out=tmp_path / "one go",
        device="cpu",
        show=False,
    )
    for name in (PLAN, SEARCH, TRACE, WEIGHTS):
        assert (model / "model" / name).read_bytes() == (tmp_path / "one go" / name).read_bytes(), name


def test_asked_for_a_metric_training_needs_a_search_of_its_own(tmp_path: Path) -> None:
    rows = {"trained": {"method": "maqee", "exits": "mlp", "bits": "both", "recovered": 2}}
    for budget, pieces in (({"max_bops": 1.35e7}, 2), ({"max_drop": 0.01}, 1)):
        read = read_table(write_table(tmp_path, rows=rows, target=0.5, compress={"budget": budget}))
        assert len([work for work in make_grid(read) if work.kind == "model"]) == pieces


def test_a_best_pair_that_is_known(tmp_path: Path) -> None:
    rows = {"best": {"method": "rtn", "exits": "mlp", "bits": "best"}}
    read = read_table(write_table(tmp_path, rows=rows))
    case = case_of(read, read.rows["best"], "best", 0)
    opened = open_case(case, Place(tmp_path, device="cpu"))
    arguments = (opened.network, opened.splits.calibration, opened.options, case.config.budget, case.config.search)
    measure, found = fit_best_pair(*arguments, torch.device("cpu"))
    again, known = fit_best_pair(*arguments, torch.device("cpu"), found.bits)
    assert (measure.passes, again.passes) == (2.0, 1.0)
    assert measure.quantized.bit_settings == again.quantized.bit_settings == known.bits == found.bits
    assert (known.confidence == found.confidence).all()
    assert (known.noise == found.noise).all()


@pytest.mark.trains
def test_searches_remember_what_others_have_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer passes, and the same plans."""
    search: dict[str, object] = {"bit_min": 3, "bit_max": 5, "max_swaps": 2}
    rows = {
        name: {"method": "maqee", "exits": "mlp", "bits": "weights", "quantizer": "rtn", "compress": {"search": more}}
        for name, more in {"one": {"alpha": 0.75}, "two": {"alpha": 0.25}, "wider": {"bit_max": 6}}.items()
    }
    options = {"samples": 40, "fit_images": 16}
    compress = {"budget": {"max_bops": 1.35e7}, "search": search, "options": options}
    path = write_table(tmp_path, rows=rows, seeds=1, target=0.5, compress=compress)
    asked: list[object] = []
    trace = ModelMeasure.trace

    def counted(measure: ModelMeasure, bits: BitSettings) -> Trace:
        asked.append(bits)
        return trace(measure, bits)

    monkeypatch.setattr(ModelMeasure, "trace", counted)
    remembering = table(path, runs=tmp_path / "runs", device="cpu", show=False)
    fewer = len(asked)
    monkeypatch.setattr(prepare, "memory_of", lambda opened, how, device: None)
    alone = table(path, runs=tmp_path / "alone", device="cpu", show=False)
    assert fewer < len(asked) - fewer
    assert remembering.failures == alone.failures == {}
    assert remembering.rows == alone.rows
    for plan in (tmp_path / "runs").rglob(PLAN):
        assert plan.read_bytes() == (tmp_path / "alone" / plan.relative_to(tmp_path / "runs")).read_bytes()


def test_what_is_remembered_is_of_the_same_fit(tmp_path: Path) -> None:
    read = read_table(write_table(tmp_path))
    opened = open_case(case_of(read, read.rows["maqee"], "maqee", 0), Place(tmp_path, device="cpu"))
    how, device = SearchOptions(), torch.device("cpu")
    first = memory_of(opened, how, device)
    assert memory_of(opened, replace(how, alpha=0.1, max_swaps=3), device) is first
    options, splits = opened.options, opened.splits
    others = [
        (opened, replace(how, bit_max=5), device),
        (opened, how, torch.device("meta")),
        (replace(opened, options=replace(options, seed=1)), how, device),
        (replace(opened, options=replace(options, method="repq")), how, device),
        (replace(opened, splits=replace(splits, calibration=splits.test)), how, device),
    ]
    for other in others:
        assert memory_of(*other) is not memory_of(opened, how, device)


def test_data_are_read_again_only_if_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    splits = maqee.open_data("digits")

    def open_data(name: str, path: Path, holdout: int | None, seed: int) -> Splits:
        read.append(path)
        return splits

    monkeypatch.setattr(opened_data, "open_data", open_data)
    backbone = load_with_exits(FIXTURES / "digits").backbone
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "images"
    file.write_bytes(b"1")
    os.utime(file, ns=(1, 1))
    source = DataSource("digits", tmp_path)
    first = open_once(source, backbone)
    assert open_once(source, backbone).test.images is first.test.images
    assert len(read) == 1
    os.utime(file, ns=(2, 2))
    open_once(source, backbone)
    assert len(read) == 2
    open_once(DataSource("digits", tmp_path, seed=1), backbone)
    assert len(read) == 3
