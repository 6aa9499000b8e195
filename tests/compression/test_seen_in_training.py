"""Calibration images that the model was trained on are noticed by their content, not by where they lie."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from maqee.compression import compress
from maqee.data import open_source
from maqee.errors import MaqeeError
from maqee.evaluation.recorded_trace import open_trace
from maqee.io import read_json
from maqee.models import load_backbone
from maqee.runs import SEEN, TRAINED_ON, model_folder, require_data
from maqee.training.trainer import run_recipe
from tests.coloured import COLOURS, coloured_options, coloured_recipe, save_coloured_vit, write_colours

pytestmark = pytest.mark.trains


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_colours(tmp_path_factory.mktemp("data") / "colours")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    run_recipe(coloured_recipe(save_coloured_vit(place / "model"), data), place / "run", device="cpu")
    return place / "run"


def compressed(run: Path, out: Path, **more: Any) -> Path:
    compress(run, options=coloured_options(), out=out, device="cpu", show=False, **more)
    return out


def shuffled(data: Path, place: Path) -> Path:
    """The same pictures under other names, so that others are held out."""
    for path in data.rglob("*.png"):
        other = place / path.relative_to(data).parent / f"{(int(path.stem) * 5) % 11}.png"
        other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, other)
    return place


def test_the_split_of_the_training_run_is_unseen(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        out = compressed(run, tmp_path / "out")
        assert read_json(out / "source.json")[SEEN] == 0
        open_trace(out)
    assert not caplog.text


def test_the_same_split_in_another_place_is_unseen(run: Path, data: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(data, tmp_path / "moved")
    assert read_json(compressed(run, tmp_path / "out", data_root=moved) / "source.json")[SEEN] == 0


def test_the_same_images_split_otherwise_are_refused(run: Path, data: Path, tmp_path: Path) -> None:
    other = shuffled(data, tmp_path / "other")
    with pytest.raises(MaqeeError, match=r"\d+ of 16 calibration images of .* was trained on, .* other images\."):
        compressed(run, tmp_path / "out", data_root=other)
    assert not (tmp_path / "out").exists()


def test_a_copied_stage_still_knows_them(run: Path, data: Path, tmp_path: Path) -> None:
    """Without the recipe: the folder says itself what it was trained on, half of what is called train here."""
    stage = shutil.copytree(model_folder(run), tmp_path / "model")
    place = _with_calibration(data, tmp_path / "split", data / "train", range(8))
    with pytest.raises(MaqeeError, match="16 of 32 calibration images"):
        compressed(stage, tmp_path / "out", data="folder", data_root=place)


def test_a_few_are_a_warning_that_search_repeats(
    run: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of 25: the others are new pictures."""
    fresh = write_colours(tmp_path / "fresh", train=11, test=6)
    stage = shutil.copytree(model_folder(run), tmp_path / "model")
    place = _with_calibration(data, tmp_path / "split", fresh / "test", range(11, 17))
    trained = _one_trained_on(run)
    shutil.copy(trained, place / "calibration" / trained.parent.name / "known.png")
    with caplog.at_level(logging.WARNING):
        out = compressed(stage, tmp_path / "out", data="folder", data_root=place)
    assert "1 of 25 calibration images of" in caplog.text
    assert read_json(out / "source.json")[SEEN] == 1
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        open_trace(out)
    assert "was trained on 1 of its calibration images" in caplog.text


def test_folders_that_do_not_say_pass(run: Path, data: Path, tmp_path: Path) -> None:
    """Models of older versions, and of others."""
    stage = shutil.copytree(model_folder(run), tmp_path / "model")
    (stage / TRAINED_ON).unlink()
    place = _with_calibration(data, tmp_path / "split", data / "train", range(8))
    out = compressed(stage, tmp_path / "out", data="folder", data_root=place)
    assert read_json(out / "source.json")[SEEN] is None
    values = read_json(out / "source.json")
    del values[SEEN]  # as older versions wrote it
    (out / "source.json").write_text(json.dumps(values))
    assert open_trace(out).plan is not None


def _with_calibration(data: Path, place: Path, source: Path, numbers: range) -> Path:
    """A data set whose calibration images are some of another folder's."""
    shutil.copytree(data, place)
    for name in COLOURS:
        (place / "calibration" / name).mkdir(parents=True)
        for number in numbers:
            shutil.copy(source / name / f"{number}.png", place / "calibration" / name)
    return place


def _one_trained_on(run: Path) -> Path:
    """A picture of the run's training set."""
    splits = open_source(require_data(run), load_backbone(model_folder(run)))
    return Path(splits.training().images.name(0))
