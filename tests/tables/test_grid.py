"""Pieces of work: each once, in order, in folders that are named by what decides them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maqee.errors import MaqeeError
from maqee.tables.grid import make_grid, row_works
from maqee.tables.table_file import read_table
from tests.tables.makers import write_table

ROWS: dict[str, Any] = {
    "borrowed": {"method": "rtn", "exits": "mlp", "bits": "W4A4", "thresholds_of": "maqee"},
    "rtn": {"method": "rtn", "exits": "mlp", "bits": "W4A4"},
    "shared": {"method": "rtn", "exits": "mlp", "bits": "W4A4", "thresholds": "shared"},
    "maqee": {"method": "maqee", "exits": "mlp", "bits": "both"},
    "trained": {"method": "rtn", "exits": "mlp", "bits": "W4A4", "recovered": 2},
}


def test_models_are_shared_and_come_first(tmp_path: Path) -> None:
    grid = make_grid(read_table(write_table(tmp_path, rows=ROWS)))
    models = [work for work in grid if work.kind == "model"]
    assert len({work.folder for work in grid}) == len(grid)
    assert len(models) == 2 + 2 + 1  # of uniform bits, searched, and trained with one seed
    assert len([work for work in grid if work.kind == "row"]) == 4 * 2 + 1
    done: set[str] = set()
    for work in grid:
        assert done.issuperset(work.needs)
        done.add(work.folder)


def test_only_some_rows_with_what_they_need(tmp_path: Path) -> None:
    table = read_table(write_table(tmp_path, rows=ROWS, target=0.5))
    grid = make_grid(table, ["borrowed"], seeds=1)
    assert {work.row.name for work in grid if work.row is not None} == {"borrowed", "maqee"}
    [run] = row_works(grid, "borrowed")
    assert run.row is not None
    assert run.row.thresholds_from in run.needs
    with pytest.raises(MaqeeError, match="did you mean rtn"):
        make_grid(table, ["rtm"])


def test_folders_are_named_by_what_decides_them(tmp_path: Path) -> None:
    def folders(**values: Any) -> dict[str, str]:
        grid = make_grid(read_table(write_table(tmp_path, rows=ROWS, **values)), seeds=1)
        return {work.folder.rpartition("-")[0]: work.folder for work in grid}

    before, search = folders(), {"max_swaps": 1}
    assert before == folders()
    name = "models/rtn-W4A4-mlp-seed0"
    after = folders(compress={"budget": {"max_bops": 1.35e7}, "search": search, "options": {"samples": 40}})
    assert after.keys() == before.keys()
    assert after[name] != before[name]  # other images
    plain = {"options": {"samples": 40, "fit_images": 16}, "budget": {"max_bops": 1.35e7}}
    searched = folders(compress=plain | {"search": search})
    assert searched[name] == before[name]  # a search is no concern of uniform bits
    assert searched["models/maqee-erq-both-mlp-seed0"] != before["models/maqee-erq-both-mlp-seed0"]
    assert searched["rtn-seed0"] == before["rtn-seed0"]
    assert searched["shared-seed0"] != before["shared-seed0"]  # its thresholds are chosen within the budget
    assert folders(threshold=0.5)["rtn-seed0"] != before["rtn-seed0"]


def test_a_model_for_every_seed(tmp_path: Path) -> None:
    grid = make_grid(read_table(write_table(tmp_path, models={"mlp": "runs/seed{seed}"})))
    assert {work.case.model for work in grid} == {"runs/seed0", "runs/seed1"}
