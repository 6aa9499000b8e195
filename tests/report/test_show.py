"""Sheets: as many as asked, as many panels as there are exits, nothing blank, nothing cut off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from maqee.apq import SearchOptions
from maqee.compression import CompressOptions, compress
from maqee.data.transforms import normalize
from maqee.errors import MaqeeError
from maqee.evaluation.answers import Answer, Example, answer, as_seen
from maqee.evaluation.shown import open_shown
from maqee.models import load_backbone
from maqee.models.load import save_backbone
from maqee.report.painters import make_painter
from maqee.report.palette import COLOURS, class_colours, shorten, text_colour
from maqee.report.sheet import answer_title, draw_sheet
from maqee.report.show import show, spread
from tests.report import makers

pytestmark = pytest.mark.trains

TASKS = ("classification", "segmentation", "detection")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: getattr(makers, name)(tmp_path_factory.mktemp(name)) for name in TASKS}


def sheet_of(run: Path, threshold: float = 0.8) -> tuple[Figure, Example]:
    shown = open_shown(run, None, "test", None, threshold)
    shown.network.eval()
    example = answer(shown.network, shown.policy, shown.data, 0, shown.task)
    return draw_sheet(shown, example, make_painter(shown.data.kind.name, example, shown.data.classes)), example


@pytest.mark.parametrize("task", TASKS)
def test_files(task: str, runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "pictures"
    pictures = show(runs[task], out, images=2)
    written = list(pictures.files)
    assert sorted(out.iterdir()) == written
    assert pictures.to_json() == {"folder": str(out), "files": [path.name for path in written]}
    assert written[0].name == "test-00000.png"
    for path in written:
        with Image.open(path) as picture:
            assert 1000 < picture.width < 2000
            assert 400 < picture.height < 2000
            assert np.asarray(picture.convert("L")).std() > 10
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in show(runs[task], out, images=2).files] == before


@pytest.mark.parametrize("task", TASKS)
def test_panels(task: str, runs: dict[str, Path]) -> None:
    figure, example = sheet_of(runs[task])
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert len(titles) == 2 + len(makers.EXITS) + 1
    assert len(example.answers) == 3
    assert sum("TAKEN" in title for title in titles) == 1
    assert [title.split("\n")[0].split(" —")[0].split(" (")[0] for title in titles[2:]] == [
        "exit after block 1",
        "exit after block 2",
        f"full depth, block {example.answers[-1].block}",
    ]
    legends = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert len(legends) == 1


@pytest.mark.parametrize("task", TASKS)
def test_no_text_is_cut_off(task: str, runs: dict[str, Path]) -> None:
    figure, _ = sheet_of(runs[task])
    figure.savefig("/dev/null", format="png")
    width, height = figure.canvas.get_width_height()
    words = [text for axes in figure.axes for text in (axes.title, *axes.texts)]
    words += [text for axes in figure.axes if (legend := axes.get_legend()) for text in legend.get_texts()]
    assert words
    for text in (*words, *figure.texts):
        box = text.get_window_extent()
        assert box.x0 >= 0, text.get_text()
        assert box.x1 <= width, text.get_text()
        assert box.y0 >= 0, text.get_text()
        assert box.y1 <= height, text.get_text()


@pytest.mark.parametrize(("threshold", "taken"), [(0.0, 0), (1.0, 2)])
def test_the_exit_taken_is_the_policys(threshold: float, taken: int, runs: dict[str, Path]) -> None:
    for task in TASKS:
        _, example = sheet_of(runs[task], threshold)
        assert [place.taken for place in example.answers].index(True) == taken
        assert [place.reached for place in example.answers] == [place <= taken for place in range(3)]
        assert all(0 <= place.confidence <= 1 for place in example.answers)
        assert all(0 <= place.score <= 1 for place in example.answers)


@pytest.mark.trains
def test_a_compressed_run_follows_its_plan(runs: dict[str, Path], tmp_path: Path) -> None:
    options = CompressOptions(method="rtn", fit_images=4, samples=8, scored=4)
    run = tmp_path / "compressed"
    how = SearchOptions(max_swaps=0)
    compress(runs["classification"], search_options=how, options=options, out=run, device="cpu")
    shown = open_shown(run, None, "calibration", None, None)
    assert "4 weight bits and 4 activation bits" in shown.title
    assert "simulated" in shown.title
    [path] = show(run, tmp_path / "out", images=1, split="calibration").files
    assert path.name == "calibration-00000.png"
    with pytest.raises(MaqeeError, match="follows its plan"):
        show(run, tmp_path / "out", threshold=0.5)


def test_a_model_without_exits(tmp_path: Path) -> None:
    run = makers.classification(tmp_path)
    save_backbone(load_backbone("vit-digits"), run / "1-joint")
    _, example = sheet_of(run)
    assert len(example.answers) == 1
    assert example.answers[0].taken


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_named_and_leave_nothing_behind(runs: dict[str, Path], tmp_path: Path) -> None:
    run, out, file = runs["classification"], tmp_path / "out", tmp_path / "file"
    file.write_text("")
    cases = (
        ({"images": 0}, "images: 0"),
        ({"split": "train"}, "'train' is not one of"),
        ({"stage": "9-joint"}, "choose 1-joint"),
        ({"threshold": -1.0}, "threshold: -1.0 must be"),
        ({"threshold": 1.7}, "threshold: 1.7 must be from 0 to 1"),
        ({"out": file}, "is a file"),
        ({"run": tmp_path / "nothing"}, "no folder"),
        ({"run": tmp_path}, "recipe.json"),
        ({"run": runs["detection"], "data_root": tmp_path / "gone"}, "gone"),
    )
    for changes, fragment in cases:
        with pytest.raises(MaqeeError, match=fragment):
            show(**{"run": run, "out": out, **changes})  # type: ignore[arg-type]
        assert not out.exists(), fragment


def test_data_of_another_kind(tmp_path: Path) -> None:
    makers.write_run(tmp_path / "run", "segmentation", {"name": "digits"}, "vit-digits", "mlp")
    with pytest.raises(MaqeeError, match="needs masks"):
        show(tmp_path / "run", tmp_path / "out")


# --- small things ----------------------------------------------------------------------------------------------------


def test_images_are_spread_evenly() -> None:
    assert spread(10, 3) == [0, 3, 6]
    assert spread(2, 5) == [0, 1]
    assert spread(233, 8)[-1] < 233
    assert len(set(spread(233, 233))) == 233


def test_colours_differ_and_stay() -> None:
    assert len(set(COLOURS)) == len(COLOURS)
    assert class_colours([2, 5], 11) == {2: COLOURS[2], 5: COLOURS[5]}
    assert list(class_colours([149, 3], 150).values()) == [COLOURS[0], COLOURS[1]]
    assert text_colour("#FFFFFF") == "#000000"
    assert text_colour("#332288") == "#FFFFFF"


def test_long_names_are_cut_in_the_middle() -> None:
    assert shorten("short", 5) == "short"
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert len(shorten("x" * 100, 22)) == 22


def test_titles() -> None:
    early = Answer(4, torch.zeros(1), 0.9, 0.5, 0.85, taken=True, reached=True)
    assert answer_title(early, "image IoU") == (
        "exit after block 4 — TAKEN\nconfidence 0.900 (needs 0.85), image IoU 50%"
    )
    last = Answer(12, torch.zeros(1), 0.9, 1.0, None, taken=False, reached=False)
    assert answer_title(last, "accuracy") == "full depth, block 12 (not run)\nconfidence 0.900, right"
    closed = Answer(4, torch.zeros(1), 0.9, 0.0, 2.0, taken=False, reached=True)
    assert answer_title(closed, "accuracy") == "exit after block 4 (not run)\nconfidence 0.900 (closed), wrong"


def test_what_is_shown_is_what_the_model_saw() -> None:
    stored = load_backbone("test-vit").preprocessing
    pixels = torch.rand(3, 8, 8)
    for wanted in (stored, replace(stored, rescale=1.0)):
        seen = as_seen(normalize(pixels[None], wanted)[0], wanted)
        assert torch.allclose(seen, pixels.permute(1, 2, 0), atol=1e-6)
