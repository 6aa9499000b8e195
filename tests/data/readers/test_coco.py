"""COCO json: both layouts, splits, class numbers, the rules for odd boxes, and mistakes by name."""

from __future__ import annotations

import json
import logging
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from maqee.boxes import PADDING
from maqee.data import Augmentation, TrainBatches, eval_batches, open_data
from maqee.data.box_targets import BOXES, pad_boxes
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing
from tests.data.makers import assert_one_sentence

SIZE = (40, 30)  # width, height
CATEGORIES = [{"id": 7, "name": "cat"}, {"id": 3, "name": "ant"}]
CAT, ANT = 1, 0  # in the order of the ids


def box(image: int, bbox: Any = (4, 3, 8, 6), category: Any = 7, **more: Any) -> dict[str, Any]:
    return {"id": 100 + image, "image_id": image, "category_id": category, "bbox": list(bbox), "iscrowd": 0, **more}


def write_part(root: Path, name: str, boxes: list[dict[str, Any]], images: int = 3, official: bool = False) -> Path:
    """A json and its images; image n is n-th by name, too."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for number in range(images):
        file = f"{name}_{number}.png"
        Image.new("RGB", SIZE, (number, 0, 0)).save(folder / file)
        listed.append({"id": number, "file_name": file, "width": SIZE[0], "height": SIZE[1]})
    values = {"images": listed, "annotations": boxes, "categories": CATEGORIES}
    path = root / (f"annotations/instances_{name}.json" if official else f"{name}.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values))
    return path


def edit(path: Path, change: Any) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def complaint(root: Path, **options: Any) -> str:
    with pytest.raises(MaqeeError) as caught:
        open_data("coco", root, **options)
    assert_one_sentence(str(caught.value))
    return str(caught.value)


def test_boxes_and_classes(tmp_path: Path) -> None:
    write_part(tmp_path, "val", [box(0), box(0, (0, 0, 40, 30), 3), box(2, (30, 20, 10, 10))])
    write_part(tmp_path, "train", [])
    test = open_data("coco", tmp_path).test
    assert test.classes == ("ant", "cat")
    assert test.targets.shape == (3, 2, 5)
    first = [[CAT, 0.2, 0.2, 0.2, 0.2], [ANT, 0.5, 0.5, 1.0, 1.0]]
    assert torch.allclose(test.targets[0], torch.tensor(first))
    assert test.targets[1, :, 0].tolist() == [PADDING, PADDING]  # an image without boxes stays
    assert test.targets[2, :, 0].tolist() == [CAT, PADDING]


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "tar"])
@pytest.mark.parametrize("official", [False, True], ids=["plain", "official"])
def test_layouts(tmp_path: Path, packed: bool, official: bool) -> None:
    names = ("train2017", "val2017") if official else ("train", "val")
    for name in names:
        write_part(tmp_path / "data", name, [box(0)], images=12, official=official)
    root = tmp_path / "data"
    if packed:
        root = tmp_path / "data.tar"
        with tarfile.open(root, "w") as archive:
            archive.add(tmp_path / "data", arcname=".")
    splits = open_data("coco", root)
    assert splits.train is not None
    assert [len(part) for part in (splits.train, splits.calibration, splits.test)] == [11, 1, 12]
    images, targets = next(eval_batches(splits.test, Preprocessing(image_size=(16, 24)), 4))
    assert images.shape == (4, 3, 16, 24)
    assert targets.shape == (4, 1, 5)


def test_image_folder_may_be_a_link(tmp_path: Path) -> None:
    write_part(tmp_path / "data", "val", [box(0)])
    (tmp_path / "data" / "val").rename(tmp_path / "elsewhere")
    (tmp_path / "data" / "val").symlink_to(tmp_path / "elsewhere")
    assert len(open_data("coco", tmp_path / "data", holdout=1).test) == 2


def test_three_parts_are_the_three_splits(tmp_path: Path) -> None:
    for count, name in enumerate(("train", "val", "test"), start=3):
        write_part(tmp_path, name, [box(0)], images=count)
    splits = open_data("coco", tmp_path)
    assert splits.train is not None
    assert [len(part) for part in (splits.train, splits.calibration, splits.test)] == [3, 4, 5]


def test_without_training_images_a_third_of_val_is_calibrated_on(tmp_path: Path) -> None:
    write_part(tmp_path, "val", [box(0)], images=9)
    splits = open_data("coco", tmp_path)
    assert splits.train is None
    assert [len(splits.calibration), len(splits.test)] == [3, 6]
    assert len(open_data("coco", tmp_path, holdout=2).calibration) == 2


def test_odd_boxes_follow_the_rules_and_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    boxes = [
        box(0, (30, 20, 20, 20)),  # over two edges
        box(1, (4, 4, 0, 5)),  # a line
        box(1, (90, 4, 5, 5)),  # elsewhere
        box(2, (4, 3, 8, 6), iscrowd=1),
    ]
    write_part(tmp_path, "val", boxes)
    with caplog.at_level(logging.WARNING):
        splits = open_data("coco", tmp_path, holdout=1)
    text = caplog.text
    assert "1 boxes reach out of the image and are cut off, the first is annotation 100 of val_0.png" in text
    assert "2 boxes have no area within the image and are left out, the first is annotation 101" in text
    assert "1 boxes are crowd regions and left out, the first is annotation 102" in text
    rows = torch.cat([splits.calibration.targets, splits.test.targets]).flatten(0, 1)
    kept = rows[rows[:, 0] != PADDING]
    assert torch.allclose(kept, torch.tensor([[CAT, 0.875, 5 / 6, 0.25, 1 / 3]]))


MISTAKES: dict[str, tuple[Any, str]] = {
    "unknown class": (
        lambda v: v["annotations"].append(box(1, category=8)),
        "annotation 101 of val_1.png has category_id 8",
    ),
    "no class": (lambda v: v["annotations"][0].pop("category_id"), "category_id None"),
    "negative side": (lambda v: v["annotations"].append(box(1, (1, 1, -2, 3))), "annotation 101 of val_1.png"),
    "three numbers": (lambda v: v["annotations"].append(box(1, (1, 1, 2))), "annotation 101 of val_1.png"),
    "words": (lambda v: v["annotations"].append(box(1, ("a", 1, 2, 3))), "annotation 101 of val_1.png"),
    "no box": (lambda v: v["annotations"][0].pop("bbox"), "annotation 100 of val_0.png"),
    "image without size": (lambda v: v["images"][0].pop("width"), "annotation 100 of val_0.png"),
    "unknown image": (lambda v: v["annotations"].append(box(9)), "image_id 9"),
    "lost image": (lambda v: v["images"][1].update(file_name="gone.png"), "gone.png"),
    "no images": (lambda v: v.update(images=[], annotations=[]), "lists no images"),
    "no categories": (lambda v: v.pop("categories"), "categories"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named(tmp_path: Path, case: str) -> None:
    change, words = MISTAKES[case]
    path = write_part(tmp_path, "val", [box(0)])
    edit(path, change)
    message = complaint(tmp_path)
    assert "val.json" in message
    assert words in message


def test_files_that_are_no_data_set(tmp_path: Path) -> None:
    assert "test or val" in complaint(tmp_path)
    (tmp_path / "val.json").write_text("{")
    assert "val.json" in complaint(tmp_path)
    (tmp_path / "x.tar").write_bytes(b"no tar")
    assert "x.tar" in complaint(tmp_path / "x.tar")
    assert "does not exist" in complaint(tmp_path / "gone")


def test_parts_with_other_classes(tmp_path: Path) -> None:
    write_part(tmp_path, "train", [box(0)])
    edit(write_part(tmp_path, "val", [box(0)]), lambda v: v["categories"].append({"id": 9, "name": "dog"}))
    assert "same categories" in complaint(tmp_path)


def test_real_subset_keeps_cocos_ids(shared_data: Path) -> None:
    splits = open_data("coco", shared_data / "coco_val2017_det_300.tar")
    assert splits.train is None
    assert len(splits.calibration) + len(splits.test) == 300
    assert len(splits.test.classes) == 91
    assert splits.test.classes[1] == "person"
    assert splits.test.classes[90] == "toothbrush"
    boxes = [(part.targets[..., 0] != PADDING).sum() for part in (splits.calibration, splits.test)]
    assert sum(boxes) == 2194


# --- boxes as targets -------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[tuple[float, ...], str]] = {
    "class beyond the list": ((2, 0.5, 0.5, 0.2, 0.2), "class outside 0..1"),
    "negative class": ((-2, 0.5, 0.5, 0.2, 0.2), "class outside 0..1"),
    "half a class": ((0.5, 0.5, 0.5, 0.2, 0.2), "class outside 0..1"),
    "no width": ((1, 0.5, 0.5, 0.0, 0.2), "no area"),
    "outside": ((1, 0.95, 0.5, 0.2, 0.2), "reach out"),
    "not a number": ((1, float("nan"), 0.5, 0.2, 0.2), "reach out"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_targets_are_named(case: str) -> None:
    row, words = BAD[case]
    targets = pad_boxes([[(1, 0.5, 0.5, 0.2, 0.2)], [row]])  # type: ignore[list-item]
    message = BOXES.complaint(targets, 2, lambda index: f"image {index}")
    assert words in message
    assert "image 1" in message
    assert not BOXES.complaint(targets[:1], 2, str)


def test_flip_and_crop_move_boxes() -> None:
    targets = pad_boxes([[(0, 0.2, 0.3, 0.2, 0.4), (1, 0.9, 0.9, 0.1, 0.1)], []])
    flipped = BOXES.flip(targets, torch.tensor([True, True]))
    assert torch.allclose(flipped[0, :, 1], torch.tensor([0.8, 0.1]))
    assert flipped[1].equal(targets[1])
    window = torch.tensor([[0.1, 0.1, 0.5, 0.5]] * 2)  # top, left, height, width
    cropped = BOXES.crop(targets, window)
    assert torch.allclose(cropped[0, 0], torch.tensor([0, 0.2, 0.4, 0.4, 0.8]))
    assert cropped[0, 1].tolist() == [PADDING, 0, 0, 0, 0]
    assert torch.allclose(BOXES.crop(targets, torch.tensor([[0.0, 0.0, 1.0, 1.0]] * 2)), targets)
    barely = BOXES.crop(targets, torch.tensor([[0.0, 0.25, 0.75, 0.75]] * 2))  # a quarter of the first box is left
    assert barely[0, 0, 0] == PADDING


def test_augmented_boxes_stay_on_what_they_show(tmp_path: Path) -> None:
    """A white rectangle on black: after any crop and flip, the box is where the white pixels are."""
    picture = Image.new("RGB", SIZE)
    picture.paste((255, 255, 255), (10, 6, 26, 18))
    path = write_part(tmp_path, "train", [box(number, (10, 6, 16, 12)) for number in range(4)], images=4)
    write_part(tmp_path, "val", [box(0)])
    write_part(tmp_path, "test", [box(0)])
    for number in range(4):
        picture.save(tmp_path / "train" / f"train_{number}.png")
    assert path.is_file()
    preprocessing = Preprocessing(image_size=(60, 80), mean=(0.0,) * 3, std=(1.0,) * 3)
    train = open_data("coco", tmp_path).training()
    batches = TrainBatches(train, preprocessing, Augmentation(flip=True, min_scale=0.5), 4, seed=0)
    seen = 0
    for step in range(6):
        images, targets = batches.batch(step)
        for pixels, rows in zip(images, targets, strict=True):
            if rows[0, 0] == PADDING:
                continue
            lit = (pixels.mean(dim=0) > 0.5).nonzero().float()
            low, high = lit.amin(dim=0), lit.amax(dim=0) + 1
            centre, size = (low + high) / 2, high - low
            expected = torch.stack([centre[1] / 80, centre[0] / 60, size[1] / 80, size[0] / 60])
            assert (rows[0, 1:] - expected).abs().max() < 0.05
            seen += 1
    assert seen > 12


@pytest.mark.parametrize(
    ("augmentation", "words"),
    [(Augmentation(padding=2), "padding"), (Augmentation(mixup=0.5), "mixup")],
    ids=["padding", "mixup"],
)
def test_variations_that_boxes_cannot_follow(tmp_path: Path, augmentation: Augmentation, words: str) -> None:
    for name in ("train", "val", "test"):
        write_part(tmp_path, name, [box(0)])
    train = open_data("coco", tmp_path).training()
    with pytest.raises(MaqeeError, match=words):
        TrainBatches(train, Preprocessing(image_size=(16, 16)), augmentation, 2, seed=0).batch(0)


def test_a_model_that_crops_its_images_is_refused(tmp_path: Path) -> None:
    write_part(tmp_path, "val", [box(0)])
    test = open_data("coco", tmp_path, holdout=1).test
    with pytest.raises(MaqeeError, match="resize"):
        next(eval_batches(test, Preprocessing(image_size=(16, 16), resize=20), 2))
