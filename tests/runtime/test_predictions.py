"""What models say about pictures: names and probabilities by hand, and the exit that was really taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import maqee
from maqee.data import ArrayImages, open_data
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy
from maqee.io import to_json
from maqee.models import load_backbone, save_backbone
from maqee.runtime import FoundBox, Prediction, ReadyModel, load
from maqee.runtime.translate import read_labels
from maqee.tasks.segmentation import DEFAULT
from tests.helpers import run_python
from tests.runtime.makers import (
    NAMES,
    detection_model,
    parting_policy,
    ready,
    seen_by,
    segmentation_model,
    small_model,
    some_pixels,
    write_compressed_run,
    write_pictures,
    write_trained_run,
)

# --- classification --------------------------------------------------------------------------------------------------


def test_labels_by_hand() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, 2.0]).log()  # shares 0, 2/5, 1/5, 2/5
    labels = read_labels(logits, ("cat", "dog", "sea lion", "newt"), top=3)
    assert {label.name for label in labels[:2]} == {"dog", "newt"}
    assert (labels[2].name, labels[2].number) == ("sea lion", 2)
    assert [label.probability for label in labels] == pytest.approx([0.4, 0.4, 0.2])
    assert [label.name for label in read_labels(logits + torch.tensor([0, 1.0, 0, 0]), (), top=9)][:3] == [
        "1",
        "3",
        "2",
    ]
    assert len(read_labels(logits, (), top=9)) == 4


def test_the_most_probable_classes_with_their_names(files: list[Path]) -> None:
    model = small_model(channels=3)
    model.backbone.classes = NAMES
    found = ready(model).predict(files, top=3)
    shares = model(seen_by(model, files)).detach().softmax(dim=-1)
    for prediction, share in zip(found, shares, strict=True):
        order = sorted(range(10), key=lambda number: -float(share[number]))[:3]
        assert [label.number for label in prediction.labels] == order
        assert [label.name for label in prediction.labels] == [NAMES[number] for number in order]
        assert [label.probability for label in prediction.labels] == pytest.approx(share[order].tolist(), abs=1e-6)
        assert prediction.confidence == pytest.approx(float(share.max()), abs=1e-6)
        assert (prediction.exit, prediction.full_depth, prediction.kind) == (4, True, "labels")
        assert (prediction.boxes, prediction.areas, prediction.mask) == ((), (), None)
    assert [prediction.image for prediction in found] == [str(file) for file in files]
    model.backbone.classes = ()
    assert [label.name for label in ready(model).predict(files[0], top=1)[0].labels] == [str(found[0].labels[0].number)]
    assert len(ready(model).predict(files[0], top=99)[0].labels) == 10


def test_every_picture_leaves_where_the_policy_says(files: list[Path]) -> None:
    model = small_model(channels=3)
    images = seen_by(model, files)
    policy = parting_policy(model, images)
    loaded = ready(model, policy=policy)
    decision = loaded.run(images)
    assert len(set(decision.exit.tolist())) > 1
    for batch_size in (1, 3, 100):
        found = loaded.predict(files, batch_size=batch_size)
        assert [prediction.exit for prediction in found] == [(1, 2, 4)[place] for place in decision.exit.tolist()]
        assert [prediction.full_depth for prediction in found] == [place == 2 for place in decision.exit.tolist()]
        assert [prediction.confidence for prediction in found] == pytest.approx(decision.confidence.tolist(), abs=1e-5)
        best = [prediction.labels[0].probability for prediction in found]
        assert best == pytest.approx(decision.confidence.tolist(), abs=1e-5)


def test_blocks_behind_the_exit_are_not_run(files: list[Path]) -> None:
    model, ran = small_model(channels=3), []
    for number, block in enumerate(model.backbone.blocks, start=1):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    found = ready(model, policy=Policy.same(0.0, 2)).predict(files)
    assert ran == [1]
    assert {(prediction.exit, prediction.full_depth) for prediction in found} == {(1, False)}


def test_models_of_one_channel_take_coloured_pictures(files: list[Path]) -> None:
    model = ready(small_model(channels=1))
    grey = [Image.open(file).convert("RGB").convert("L") for file in files]
    named = model.predict(files)
    for one, other in zip(named, model.predict(grey), strict=True):
        assert one.labels == other.labels


def test_a_stream_is_answered_as_it_comes() -> None:
    model, taken = ready(small_model(channels=3)), []

    def camera() -> Any:
        for number in range(100):
            taken.append(number)
            yield some_pixels(seed=number)

    stream = model.predict_each(camera(), batch_size=1)
    assert [next(stream).image for _ in range(3)] == ["image 0", "image 1", "image 2"]
    assert taken == [0, 1, 2]


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_trained_run_goes_to_full_depth_unless_told_otherwise(files: list[Path], tmp_path: Path) -> None:
    model = small_model(channels=3)
    run = write_trained_run(tmp_path / "run", model)
    expected = ready(model).predict(files)
    for folder in (run, run / "1-joint", str(run)):
        assert load(folder).predict(files) == expected
        assert maqee.predict(folder, files, device="cpu") == expected
    assert {prediction.exit for prediction in expected} == {4}
    assert {prediction.exit for prediction in maqee.predict(run, files, threshold=0.0, device="cpu")} == {1}
    policy = parting_policy(model, seen_by(model, files))
    assert maqee.predict(run, files, policy=policy, device="cpu") == ready(model, policy=policy).predict(files)
    assert maqee.predict(ready(model), files, policy=policy) == ready(model, policy=policy).predict(files)


def test_a_compressed_run_follows_its_plan_or_another(files: list[Path], tmp_path: Path) -> None:
    model = small_model(channels=3)
    images = seen_by(model, files)
    run, compressed = write_compressed_run(tmp_path / "run", model, images)
    decision = compressed.run(images)
    assert len(set(decision.exit.tolist())) > 1
    found = maqee.predict(run, files, device="cpu")
    assert [prediction.exit for prediction in found] == [(1, 2, 4)[place] for place in decision.exit.tolist()]
    answers = [prediction.labels[0].number for prediction in found]
    assert answers == decision.output.argmax(dim=-1).tolist()
    plain = write_trained_run(tmp_path / "trained", model)
    for place in (run, run / "plan.json", str(run / "plan.json")):
        policy = compressed.policy
        assert maqee.predict(plain, files, policy=place, device="cpu") == ready(model, policy=policy).predict(files)


def test_a_plain_model_has_no_exits(files: list[Path], tmp_path: Path) -> None:
    model = small_model(channels=3)
    save_backbone(model.backbone, tmp_path / "plain")
    found = maqee.predict(tmp_path / "plain", files, threshold=0.3, device="cpu")
    assert {(prediction.exit, prediction.full_depth) for prediction in found} == {(4, True)}
    assert [one.labels for one in found] == [one.labels for one in ready(model).predict(files)]


def test_a_model_that_nobody_told_the_task_of_is_known_by_its_outputs(tmp_path: Path) -> None:
    save_backbone(detection_model().backbone, tmp_path / "detector")
    segmentation_model().save(tmp_path / "segmenter")
    small_model().save(tmp_path / "classifier")
    assert load(tmp_path / "detector").task_name == "detection"
    assert load(tmp_path / "segmenter").task_name == DEFAULT
    assert load(tmp_path / "classifier").task_name == "classification"
    assert maqee.predict(tmp_path / "detector", some_pixels(), device="cpu")[0].kind == "boxes"


# --- results ---------------------------------------------------------------------------------------------------------


def test_results_are_plain_values_for_json(files: list[Path]) -> None:
    [prediction] = ready(small_model(channels=3)).predict(files[0], top=2)
    values = json.loads(to_json(prediction.to_json()))
    assert set(values) == {"image", "exit", "full_depth", "confidence", "labels"}
    assert values["labels"] == [
        {"name": label.name, "number": label.number, "probability": label.probability} for label in prediction.labels
    ]
    [dense] = ready(segmentation_model(), "segmentation").predict(files[0])
    values = json.loads(to_json(dense.to_json()))
    assert set(values) == {"image", "exit", "full_depth", "confidence", "areas"}
    box = FoundBox("cat", 0, 0.9, 1.0, 2.0, 3.0, 4.0)
    found = Prediction("a.jpg", 3, False, 0.8, "boxes", boxes=(box,))
    assert found.to_json()["boxes"] == [
        {"name": "cat", "number": 0, "probability": 0.9, "left": 1.0, "top": 2.0, "right": 3.0, "bottom": 4.0}
    ]
    assert Prediction("a.jpg", 3, False, 0.8, "boxes").to_json()["boxes"] == []


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_wrong_options_are_named(files: list[Path], tmp_path: Path) -> None:
    model = ready(small_model(channels=3))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"top": 0}, "top: 0"),
        ({"batch_size": 0}, "batch_size: 0"),
        ({"threshold": 1.7}, "threshold: 1.7"),
        ({"threshold": float("nan")}, "threshold: nan"),
        ({"threshold": 0.5, "policy": Policy((0.1, 0.2))}, "either policy or threshold"),
        ({"policy": Policy((0.1,))}, "1 thresholds, the model 2 exits"),
        ({"policy": tmp_path / "no-plan.json"}, "no-plan.json does not exist"),
    ]
    for options, hint in cases:
        with pytest.raises(MaqeeError, match=hint):
            maqee.predict(model, files, **options)
    with pytest.raises(MaqeeError, match="is no folder"):
        maqee.predict(tmp_path / "gone", files)


def test_a_model_without_classes_cannot_predict(files: list[Path]) -> None:
    network = EarlyExitModel(load_backbone("test-vit", num_classes=0), (), ()).eval()
    with pytest.raises(MaqeeError, match="no classifier"):
        ready(network).predict(files)


@pytest.mark.parametrize(
    ("images", "hint"),
    [
        (torch.zeros(3, 16, 16), r"takes \(batch, 3, height, width\), not \(3, 16, 16\)"),
        (torch.zeros(2, 1, 16, 16), r"not \(2, 1, 16, 16\)"),
        (torch.zeros(2, 3, 16, 16, dtype=torch.uint8), "torch.uint8: use predict"),
        (Image.new("RGB", (16, 16)), "not Image: for files, pictures and arrays use predict"),
        (some_pixels(), "not ndarray"),
        ("pics/a.jpg", "not str"),
        (Path("pics/a.jpg"), "Path: for files"),
    ],
    ids=["3-D", "one channel", "uint8", "PIL", "array", "path", "Path"],
)
def test_a_model_called_with_what_predict_takes_says_so(images: Any, hint: str) -> None:
    model: ReadyModel = ready(small_model(channels=3))
    for call in (model, model.run):
        with pytest.raises(MaqeeError, match=hint):
            call(images)


def test_loading_and_predicting_need_neither_search_nor_trainer_nor_readers_nor_reports(tmp_path: Path) -> None:
    run = write_trained_run(tmp_path / "run", small_model(channels=3))
    [file] = write_pictures(tmp_path / "pics", count=1)
    run_python(
        "import sys, maqee\n"
        f"[prediction] = maqee.load({str(run)!r}).predict({str(file)!r})\n"
        "assert len(prediction.labels) == 5\n"
        "away = ('maqee.training', 'maqee.compression', 'maqee.data.readers', 'maqee.evaluation', 'maqee.report',\n"
        "        'maqee.apq.loop', 'maqee.apq.choose', 'maqee.apq.thresholds', 'maqee.apq.exact', 'maqee.apq.greedy')\n"
        "found = [name for name in sys.modules if name.startswith(away)]\n"
        "assert not found, found\n"
        "assert 'matplotlib' not in sys.modules and 'transformers' not in sys.modules\n"
    )


def test_a_real_model_names_real_pictures(shared_weights: Path, shared_data: Path) -> None:
    """It is right on 88 of 100 test images at full depth."""
    model = load(shared_weights / "cifar100-vit-tiny-lgvit")
    data = open_data("cifar100", shared_data).test.select(range(0, 10_000, 250))
    assert isinstance(data.images, ArrayImages)
    model.model.backbone.classes = data.classes
    found = model.predict(data.images.pixels)
    right = [one.labels[0].name == data.classes[int(label)] for one, label in zip(found, data.targets, strict=True)]
    assert sum(right) >= 30  # of 40
    early = model.with_policy(0.8).predict(data.images.pixels)
    assert sum(one.exit for one in early) < sum(one.exit for one in found)
