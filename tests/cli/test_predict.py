"""`maqee predict` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from maqee.report import save_mask
from maqee.report.mask_files import mask_files
from maqee.runtime import load
from maqee.runtime.input_batches import read_batches
from maqee.tasks.pixels import IGNORE
from tests.helpers import invoke
from tests.runtime import makers

pytestmark = pytest.mark.trains


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return makers.write_pictures(tmp_path / "pics", count=3)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return makers.write_trained_run(tmp_path / "run", makers.small_model(channels=3))


def predict(*arguments: object) -> str:
    result = invoke("predict", *(str(argument) for argument in arguments), "--device", "cpu")
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def predict_json(*arguments: object) -> Any:
    return json.loads(predict(*arguments, "--json"))


def test_a_line_for_each_picture_and_what_it_took(run: Path, files: list[Path]) -> None:
    lines = predict(run, *files, "--top", "2", "--threshold", "0").splitlines()
    assert lines[0].split() == ["image", "exit", "confidence", "classes"]
    for line, file, found in zip(lines[1:4], files, load(run).with_policy(0.0).predict(files, top=2), strict=True):
        first, second = found.labels
        assert line.startswith(f"{file}  exit after block 1 of 4")
        assert f"{found.confidence:.1%}" in line
        assert line.endswith(f"{first.name} {first.probability:.1%}; {second.name} {second.probability:.1%}")
    assert lines[4].startswith("3 images, mean exit 1.00 of 4, ")
    assert lines[4].endswith("images a second on cpu, reading them included (early exit executed, full precision)")
    assert len(lines) == 5


def test_json_is_what_python_gives(run: Path, files: list[Path]) -> None:
    wanted = [prediction.to_json() for prediction in load(run).predict(files, top=3)]
    assert predict_json(run, *files, "--top", "3") == wanted
    assert [row["exit"] for row in wanted] == [4, 4, 4]


def test_folders_patterns_and_files_in_the_order_given(run: Path, files: list[Path]) -> None:
    folder, first = files[0].parent, files[0]
    assert [row["image"] for row in predict_json(run, folder)] == [str(file) for file in files]
    assert [row["image"] for row in predict_json(run, f"{folder}/[12].png")] == [str(file) for file in files[1:]]
    given = predict_json(run, files[2], folder, first, "--batch", "2")
    assert [row["image"] for row in given] == [str(file) for file in (files[2], *files, first)]


def test_a_compressed_run_and_its_plan_for_another_model(run: Path, files: list[Path], tmp_path: Path) -> None:
    model = makers.small_model(channels=3)
    [batch] = read_batches(files, model.backbone.preprocessing, len(files), torch.device("cpu"))
    compressed, loaded = makers.write_compressed_run(tmp_path / "compressed", model, batch.images)
    exits = [prediction.exit for prediction in loaded.predict(files)]
    assert len(set(exits)) > 1
    assert [row["exit"] for row in predict_json(compressed, *files)] == exits
    assert "(early exit executed, quantization simulated)" in predict(compressed, *files)
    other = makers.ready(model, policy=loaded.policy)
    rows = predict_json(run, *files, "--policy", compressed / "plan.json")
    assert [row["exit"] for row in rows] == [prediction.exit for prediction in other.predict(files)]


def test_objects_are_listed_below_their_picture(files: list[Path], tmp_path: Path) -> None:
    run = makers.write_trained_run(tmp_path / "detector", makers.detection_model(), "detection")
    predictions = load(run).predict(files)
    lines = predict(run, *files).splitlines()
    assert lines[0].split() == ["image", "exit", "confidence", "objects"]
    assert len(lines) == 1 + len(files) + sum(len(prediction.boxes) for prediction in predictions) + 1
    place = 1
    for prediction in predictions:
        count = len(prediction.boxes)
        assert lines[place].endswith("none" if not count else f"{count} object{'s' if count > 1 else ''}")
        for line, box in zip(lines[place + 1 : place + 1 + count], prediction.boxes, strict=True):
            assert line.startswith(f"  {box.name} {box.probability:.1%}: left {box.left:.0f}, top {box.top:.0f}, ")
        place += 1 + count
    assert [row["boxes"] for row in predict_json(run, *files)] == [one.to_json()["boxes"] for one in predictions]


def test_masks_are_written_as_pictures_of_class_numbers(files: list[Path], tmp_path: Path) -> None:
    run = makers.write_trained_run(tmp_path / "segmenter", makers.segmentation_model(), "segmentation")
    out = tmp_path / "masks"
    output = predict(run, *files, "--masks", out)
    assert f"Masks written to {out}, the first is 0.png." in output
    for file, prediction in zip(files, load(run).predict(files), strict=True):
        assert prediction.mask is not None
        with Image.open(out / file.name) as mask:
            assert (mask.mode, mask.size) == ("P", (30, 20))
            assert np.array_equal(np.asarray(mask), prediction.mask)
        area = prediction.areas[0]
        assert f"{area.name} {area.share:.1%}" in output
    rows = predict_json(run, *files, "--masks", out)
    assert [row["mask"] for row in rows] == [str(out / file.name) for file in files]
    assert "mask" not in predict_json(run, *files)[0]


def test_masks_have_colours_and_no_class_is_black(tmp_path: Path) -> None:
    save_mask(np.array([[0, 1, IGNORE]], dtype=np.uint8), tmp_path / "deep" / "mask.png")
    with Image.open(tmp_path / "deep" / "mask.png") as image:
        colours = np.asarray(image.convert("RGB"))[0].tolist()
    assert colours == [[0x00, 0x72, 0xB2], [0xE6, 0x9F, 0x00], [0, 0, 0]]


def test_masks_of_pictures_with_the_same_name(tmp_path: Path) -> None:
    names = ["a/1.jpg", "b/1.png", "1-2.png", "c/1.webp"]
    found = [file.name for file in mask_files(names, tmp_path)]
    assert found == ["1.png", "1-2.png", "1-2-2.png", "1-3.png"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("{run}", "nowhere.jpg"), "'nowhere.jpg' does not exist"),
        (("{run}", "{pics}/*.gif"), "No file matches"),
        (("{run}", "{run}"), "holds no images"),
        (("{run}", "{run}/recipe.json"), "recipe.json cannot be read as an image"),
        (("gone", "{pics}"), "gone is no folder"),
        (("{run}", "{pics}", "--top", "0"), "top: 0"),
        (("{run}", "{pics}", "--batch", "0"), "batch_size: 0"),
        (("{run}", "{pics}", "--threshold", "1.7"), "threshold: 1.7"),
        (("{run}", "{pics}", "--threshold", "0.5", "--policy", "plan.json"), "either policy or threshold"),
        (("{run}", "{pics}", "--policy", "plan.json"), "plan.json does not exist"),
        (("{run}", "{pics}", "--masks", "{pics}"), "--masks is for segmentation, and this model is for classification"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(
    run: Path, files: list[Path], arguments: tuple[str, ...], hint: str
) -> None:
    given = [argument.format(run=run, pics=files[0].parent) for argument in arguments]
    result = invoke("predict", *given, "--device", "cpu")
    assert result.exit_code == 2
    assert hint in str(result.exception)


def test_no_picture_is_overwritten_by_its_mask(files: list[Path], tmp_path: Path) -> None:
    run = makers.write_trained_run(tmp_path / "segmenter", makers.segmentation_model(), "segmentation")
    before = files[0].read_bytes()
    result = invoke("predict", str(run), str(files[0]), "--masks", str(files[0].parent), "--device", "cpu")
    assert result.exit_code == 2
    assert "would take the place of a picture" in str(result.exception)
    assert files[0].read_bytes() == before


def test_a_folder_for_masks_that_cannot_be(files: list[Path], tmp_path: Path) -> None:
    run = makers.write_trained_run(tmp_path / "segmenter", makers.segmentation_model(), "segmentation")
    result = invoke("predict", str(run), str(files[0]), "--masks", str(run / "recipe.json"), "--device", "cpu")
    assert result.exit_code == 2
    assert "recipe.json" in str(result.exception)


def test_nothing_to_predict_is_a_usage_error(run: Path) -> None:
    assert invoke("predict", str(run)).exit_code == 2
