"""A table on the digits: figures, resuming, failures, worker processes, and the same bytes wherever it is made."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

import maqee
from maqee.errors import MaqeeError
from maqee.io import read_json
from maqee.runs import CONFIG
from maqee.tables.grid import make_grid
from maqee.tables.measure_row import OFFSETS
from maqee.tables.prepare import open_case
from maqee.tables.table_file import read_table
from maqee.tables.table_run import Table, table
from maqee.tables.work import ROW, Place
from tests.helpers import FIXTURES
from tests.tables.makers import Killer, without_environment, write_table

pytestmark = pytest.mark.trains
NEEDS_RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (the extra ray)")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Table]:
    """The table, made in this process: its file, the folder of its runs, and what came of it."""
    folder = tmp_path_factory.mktemp("table")
    path = write_table(folder)
    done = table(path, runs=folder / "runs", out=folder / "out.json", device="cpu", show=False)
    return path, folder / "runs", done


def test_rows(made: tuple[Path, Path, Table]) -> None:
    path, runs, done = made
    assert done.failures == {}
    assert [row["name"] for row in done.rows] == ["rtn", "maqee"]
    options = maqee.CompressOptions(samples=40, scored=20, fit_images=16, seed=1)
    baseline = maqee.baselines(FIXTURES / "digits", ["rtn"], data="digits", options=options, device="cpu").rows[1]
    [rtn, searched] = done.rows
    assert (rtn["bits"], rtn["execution"], rtn["seeds"], rtn["thresholds"]) == ("W4A4", "simulated", 2, "0.8")
    assert rtn["runs"][1]["accuracy"] == baseline.standard.metrics["accuracy"]
    assert rtn["runs"][1]["bops"] == baseline.standard.bops
    assert rtn["accuracy"]["mean"] == pytest.approx(sum(run["accuracy"] for run in rtn["runs"]) / 2, rel=1e-6)
    assert rtn["command"] == f"maqee table {path} --only rtn"
    assert (searched["bits"], searched["quantizer"], searched["recovered"]) == ("MP both", "rtn", 0)
    model = runs / "models" / read_json(next(runs.glob("maqee-seed0-*")) / ROW)["model"] / "model"
    plan = maqee.Plan.load(model / "plan.json")
    assert searched["runs"][0]["thresholds"] == list(plan.thresholds)
    assert plan.passes is not None
    assert (rtn["search_images"], searched["runs"][0]["search_images"]) == (None, round(40 * plan.passes))
    curve = {point["offset"]: point for point in searched["runs"][0]["curve"]}
    assert tuple(curve) == OFFSETS
    assert curve[0.0]["accuracy"] == searched["runs"][0]["accuracy"]
    assert curve[-0.4]["mean_exit"] <= curve[0.0]["mean_exit"] <= curve[0.2]["mean_exit"]
    figures = maqee.evaluate(model, controlled=searched["runs"][0]["target"], device="cpu")
    assert figures.plan is not None
    assert searched["runs"][0]["accuracy"] == figures.plan.metrics["accuracy"]
    controlled = searched["runs"][0]["controlled"]
    assert (controlled is None) == (figures.controlled is None)
    if figures.controlled is not None:
        assert controlled["bops"] == figures.controlled.bops
    assert read_json(path.parent / "out.json") == done.to_json()


def test_finished_runs_are_not_done_again(made: tuple[Path, Path, Table]) -> None:
    path, runs, done = made
    again = table(path, runs=runs, out=path.parent / "again.json", device="cpu", show=False)
    assert again.computed == ()
    assert (path.parent / "again.json").read_bytes() == (path.parent / "out.json").read_bytes()
    missing = next(runs.glob("rtn-seed1-*"))
    kept = (missing / ROW).read_bytes()
    (missing / ROW).unlink()
    assert table(path, only=["maqee"], runs=runs, device="cpu", show=False).computed == ()
    part = table(path, runs=runs, device="cpu", seeds=1, show=False)
    assert (part.computed, part.rows[0]["seeds"], part.rows[0]["accuracy"]["std"]) == ((), 1, None)
    assert table(path, only=["rtn"], runs=runs, device="cpu", show=False).computed == (missing.name,)
    assert (missing / ROW).read_bytes() == kept
    assert len(done.computed) == 12  # of each row and seed a model, its pass over the test images, and the figures


def test_a_table_goes_on_from_its_own_file(made: tuple[Path, Path, Table], tmp_path: Path) -> None:
    """Where the runs are gone, what the file has is enough for what it has; other seeds are made."""
    path, _, done = made
    out = tmp_path / "out.json"
    out.write_bytes((path.parent / "out.json").read_bytes())
    again = table(path, runs=tmp_path / "runs", out=out, device="cpu", show=False)
    assert again.computed == ()
    assert out.read_bytes() == (path.parent / "out.json").read_bytes()
    more = table(path, only=["rtn"], seeds=3, runs=tmp_path / "runs", out=out, device="cpu", show=False)
    assert {folder.rpartition("-seed")[2][0] for folder in more.computed} == {"2"}
    assert [run["seed"] for run in more.rows[0]["runs"]] == [0, 1, 2]
    assert more.rows[0]["runs"][:2] == done.rows[0]["runs"]


def test_a_model_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    """A training run that goes on has another last stage soon: one row must not mix the two."""
    run = shutil.copytree(FIXTURES / "digits", tmp_path / "run")
    path = write_table(tmp_path, models={"mlp": str(run)})
    grid = make_grid(read_table(path), ["rtn"], seeds=1)
    (run / CONFIG).write_text((run / CONFIG).read_text() + " ")
    with pytest.raises(MaqeeError, match="run has changed since the table was begun: start the table again"):
        open_case(grid[0].case, Place(tmp_path / "runs", device="cpu"))
    assert open_case(make_grid(read_table(path), ["rtn"], seeds=1)[0].case, Place(tmp_path / "runs", device="cpu"))


def test_rows_whose_model_is_elsewhere_are_kept(
    made: tuple[Path, Path, Table], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs are named after the weights: without them nobody can say whether a row is still what was asked for."""
    path, runs, done = made
    out = tmp_path / "out.json"
    out.write_bytes((path.parent / "out.json").read_bytes())
    rows = {"rtn": {"method": "rtn", "exits": "elsewhere", "bits": "W4A4"}}
    rows["maqee"] = {"method": "maqee", "exits": "mlp", "bits": "both", "quantizer": "rtn"}
    models = {"mlp": str(FIXTURES / "digits"), "elsewhere": "nowhere"}
    moved = write_table(tmp_path, rows=rows, models=models, target=0.5)
    part = table(moved, only=["maqee"], seeds=1, runs=runs, out=out, device="cpu", show=False)
    assert ([row["name"] for row in part.rows], part.missing) == (["rtn", "maqee"], ())
    assert part.rows[0] == done.rows[0]
    assert part.facts == done.facts
    assert read_json(out)["rows"][0] == done.rows[0]
    assert "The row rtn is kept" in caplog.text
    assert "nowhere is not here" in caplog.text
    changed = write_table(tmp_path, threshold=0.7)  # the model is here: what the file has is of other settings
    part = table(changed, only=["maqee"], seeds=1, runs=runs, out=out, device="cpu", show=False)
    assert (len(part.rows), part.missing) == (1, ("rtn",))


def test_a_file_that_does_not_name_its_runs(
    made: tuple[Path, Path, Table], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, _, done = made
    found = json.loads(json.dumps(done.to_json()))
    for run in found["rows"][0]["runs"]:
        del run["run"]
    out = tmp_path / "out.json"
    out.write_text(json.dumps(found))
    part = table(path, only=["maqee"], runs=tmp_path / "runs", out=out, device="cpu", show=False)
    assert (part.computed, [row["name"] for row in part.rows], part.missing) == ((), ["maqee"], ("rtn",))
    assert "did not name its runs: without their folders, rtn will be left out" in caplog.text


def test_a_file_of_something_else_is_not_written_over(made: tuple[Path, Path, Table], tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"table": "other", "rows": []}')
    with pytest.raises(MaqeeError, match=r"other\.json is not the file of the table"):
        table(made[0], runs=tmp_path / "runs", out=other, device="cpu", show=False)
    assert other.read_text() == '{"table": "other", "rows": []}'


def test_a_failure_does_not_cost_the_rest(made: tuple[Path, Path, Table]) -> None:
    path, runs, _ = made
    rows = {
        "lost": {"method": "rtn", "exits": "lost", "bits": "W4A4"},
        "rtn": {"method": "rtn", "exits": "mlp", "bits": "W4A4"},
    }
    models = {"lost": "nowhere", "mlp": str(FIXTURES / "digits")}
    other = path.parent / "other"
    other.mkdir()
    done = table(write_table(other, rows=rows, models=models, target=0.5), runs=runs, device="cpu", seeds=1, show=False)
    assert [row["name"] for row in done.rows] == ["rtn"]
    assert done.missing == ("lost",)
    model, test_pass, row = sorted(done.failures, key=lambda folder: (folder.startswith("lost"), folder))
    assert "nowhere" in done.failures[model]
    assert "Traceback" in (runs / model / "error.txt").read_text()
    assert done.failures[test_pass] == f"It needs {model}, which failed."
    assert done.failures[row] == f"It needs {test_pass}, which failed."


def test_other_rows(tmp_path: Path) -> None:
    """Each kind that a fair comparison needs, once."""
    rows = {
        "bare": {"method": "float", "exits": "mlp", "thresholds": "none"},
        "float": {"method": "float", "exits": "mlp"},
        "mptq": {"method": "mptq", "exits": "mlp", "bits": "W4A4"},
        "trained": {"method": "rtn", "exits": "mlp", "bits": "W4A4", "recovered": 2},
        "best": {"method": "rtn", "exits": "mlp", "bits": "best", "thresholds": "shared"},
        "plan": {"method": "maqee", "exits": "mlp", "bits": "weights", "quantizer": "rtn"},
        "tied": {"method": "maqee", "exits": "mlp", "bits": "weights", "quantizer": "rtn", "thresholds": "shared"},
        "borrowed": {"method": "rtn", "exits": "mlp", "bits": "W4A4", "thresholds_of": "plan"},
        "chosen": {"method": "rtn", "exits": "mlp", "bits": "W4A4", "thresholds": "searched"},
    }
    path = write_table(tmp_path, rows=rows, seeds=1, target="chosen")
    done = table(path, runs=tmp_path / "runs", device="cpu", show=False)
    assert done.failures == {}
    found = {row["name"]: row for row in done.rows}
    assert list(found) == list(rows)
    assert (found["bare"]["mean_exit"]["mean"], found["bare"]["exits"]) == (4.0, "none")
    assert found["bare"]["bops"]["mean"] > found["float"]["bops"]["mean"]
    assert (found["mptq"]["bits"], found["mptq"]["weight_bits"]["mean"]) == ("MP W4A4", 4.0)
    assert (found["trained"]["recovered"], found["trained"]["training_kept"]) == (2, 1)
    assert (found["plan"]["training_kept"], found["plan"]["search_images"]) == (None, None)
    assert found["best"]["bits"] in ("best W4A4", "best W4A5")
    assert found["best"]["bops"]["mean"] < 1.5e7  # within the budget on calibration images
    borrowed, plan, tied = (found[name]["runs"][0]["thresholds"] for name in ("borrowed", "plan", "tied"))
    assert borrowed == plan
    assert len(set(tied)) == 1
    models = {folder.name.rpartition("-seed")[0] for folder in (tmp_path / "runs" / "models").iterdir()}
    assert len(models) == 7  # of nine rows


def test_the_toy_from_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES.parents[1])
    rows = ["float-no-exits", "float", "erq"]
    done = table("tables/digits.yaml", only=rows, seeds=1, runs=tmp_path, device="cpu", show=False)
    assert (done.failures, [row["name"] for row in done.rows]) == ({}, rows)


@pytest.mark.stops
@pytest.mark.process
def test_a_killed_worker_process_loses_nothing(made: tuple[Path, Path, Table], tmp_path: Path) -> None:
    path, _, here = made
    killer = Killer(tmp_path / "runs")
    killer.start()
    done = table(path, runs=tmp_path / "runs", out=tmp_path / "out.json", jobs=2, device="cpu", show=False)
    killer.stop = True
    assert killer.killed
    assert done.failures == {}
    assert sorted(done.computed) == sorted(here.computed)  # each once
    assert without_environment(tmp_path / "out.json") == without_environment(path.parent / "out.json")


@NEEDS_RAY
def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="ray: nobody answers at 127"):
        table(write_table(tmp_path), runs=tmp_path / "runs", ray="127.0.0.1:1", show=False)
    assert not (tmp_path / "runs").exists()


def test_ray_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MaqeeError, match=r"pip install 'maqee\[ray\]'"):
        table(write_table(tmp_path), runs=tmp_path / "runs", ray="local", show=False)


@pytest.mark.stops
@pytest.mark.process
@NEEDS_RAY
def test_a_killed_worker_of_a_ray_cluster_loses_nothing(made: tuple[Path, Path, Table], tmp_path: Path) -> None:
    path, _, here = made
    killer = Killer(tmp_path / "runs")
    killer.start()
    out = tmp_path / "out.json"
    done = table(path, runs=tmp_path / "runs", out=out, jobs=2, ray="local", device="cpu", show=False)
    killer.stop = True
    assert killer.killed
    assert done.failures == {}
    assert sorted(done.computed) == sorted(here.computed)  # each once
    assert without_environment(out) == without_environment(path.parent / "out.json")
