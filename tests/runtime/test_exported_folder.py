"""A folder that runs without maqee."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import maqee
from maqee.errors import MaqeeError
from tests.helpers import invoke
from tests.runtime.makers import small_model, write_compressed_run, write_pictures


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = torch.randn(24, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    return write_compressed_run(tmp_path_factory.mktemp("run") / "run", small_model(), images)[0]


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return maqee.export(run, tmp_path_factory.mktemp("out") / "onnx").folder


def run_program(folder: Path, *pictures: Path) -> subprocess.CompletedProcess[str]:
    """In a process that has no maqee and no torch to import."""
    hidden = "import sys, runpy; sys.modules['maqee'] = sys.modules['torch'] = None; sys.argv = sys.argv[1:]; "
    command = [sys.executable, "-c", hidden + "runpy.run_path(sys.argv[0], run_name='__main__')"]
    return subprocess.run(
        [*command, str(folder / "run.py"), *map(str, pictures)], capture_output=True, text=True, check=False
    )


@pytest.mark.process
def test_the_program_says_what_predict_says(run: Path, exported: Path, tmp_path: Path) -> None:
    files = write_pictures(tmp_path / "pictures", 4)
    wanted = [
        f"{file}: {found.labels[0].name} (confidence {found.confidence:.3f}, after block {found.exit})"
        for file, found in zip(files, maqee.predict(run, files, device="cpu"), strict=True)
    ]
    assert len({line[-2:] for line in wanted}) > 1, "all pictures leave at one exit"
    done = run_program(exported, *files)
    assert done.stderr == ""
    assert done.stdout.splitlines() == wanted


@pytest.mark.process
def test_the_program_runs_openvino_files(run: Path, tmp_path: Path) -> None:
    folder = maqee.export(run, tmp_path / "openvino", "openvino").folder
    done = run_program(folder, *write_pictures(tmp_path / "pictures", 1))
    assert done.returncode == 0, done.stderr
    assert "after block" in done.stdout


@pytest.mark.process
def test_the_program_notices_a_damaged_file(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in exported.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "segment_2.onnx").write_bytes(b"")
    done = run_program(folder, *write_pictures(tmp_path / "pictures", 1))
    assert done.returncode == 1
    assert "segment_2.onnx is not the file that was exported" in done.stderr


def test_the_program_is_short(exported: Path) -> None:
    assert len((exported / "run.py").read_text().splitlines()) < 100


def test_the_manifest_describes_every_file(run: Path, exported: Path) -> None:
    about, model = json.loads((exported / "manifest.json").read_text()), maqee.load(run)
    assert about["thresholds"] == list(model.policy.thresholds)
    assert [segment["block"] for segment in about["segments"]] == list(model.model.exit_blocks)
    assert about["segments"][0]["shapes"]["images"] == ["batch", 1, 16, 16]
    assert about["segments"][0]["shapes"]["output"] == ["batch", 10]
    for segment in about["segments"]:
        for name, sha256 in segment["sha256"].items():
            assert hashlib.sha256((exported / name).read_bytes()).hexdigest() == sha256


def test_the_command_writes_the_same_bytes_again(run: Path, exported: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    result = invoke("export", str(run), "--out", str(again), "--json")
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["files"]) == {file.name for file in exported.iterdir()}
    for file in exported.iterdir():
        assert (again / file.name).read_bytes() == file.read_bytes()


def test_other_folders_are_left_alone(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(MaqeeError, match="was not exported by maqee: give another folder"):
        maqee.export(run, tmp_path)
    with pytest.raises(MaqeeError, match="'onx'"):
        maqee.export(run, tmp_path / "new", "onx")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_a_missing_package_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maqee.runtime.export.exported.find_spec", lambda name: None)
    with pytest.raises(MaqeeError, match=r"needs onnx: pip install 'maqee\[onnx\]'"):
        maqee.export(run, tmp_path / "new")
