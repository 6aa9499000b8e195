"""ADE20K as SceneParse150: folders, the Hub's parquet files, real samples, and every mistake named."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from maqee.data import eval_batches, find_overlaps, open_data
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing
from maqee.tasks.pixels import IGNORE
from tests.data import makers
from tests.data.makers import assert_refused, names_of

SMALL = Preprocessing(image_size=(16, 24))
TRAIN, VALIDATION = makers.ade20k_pairs("train", 6), makers.ade20k_pairs("val", 3)


def write_folders(root: Path) -> Path:
    for split, pairs in (("training", TRAIN), ("validation", VALIDATION)):
        for name, (image, mask) in pairs.items():
            makers.write_members(root / "images" / split, {f"{name}.jpg": image})
            makers.write_members(root / "annotations" / split, {f"{name}.png": mask})
    return root


def write_inner_folders(root: Path) -> Path:
    write_folders(root / "ADEChallengeData2016")
    return root


def _table(path: Path, pairs: dict[str, tuple[bytes, bytes]]) -> None:
    columns: dict[str, Sequence[object]] = {
        "image": [{"bytes": image, "path": f"{name}.jpg"} for name, (image, _) in pairs.items()],
        "annotation": [{"bytes": mask, "path": f"{name}.png"} for name, (_, mask) in pairs.items()],
        "scene_category": [0] * len(pairs),
    }
    makers.write_table(path, columns)


def write_hub(root: Path) -> Path:
    """As the Hub converts it: a folder a subset and split."""
    for subset in ("scene_parsing", "instance_segmentation"):
        _table(root / subset / "train" / "0000.parquet", dict(list(TRAIN.items())[:4]))
        _table(root / subset / "train" / "0001.parquet", dict(list(TRAIN.items())[4:]))
        _table(root / subset / "validation" / "0000.parquet", VALIDATION)
        _table(root / subset / "test" / "0000.parquet", VALIDATION)
    return root


def write_named_parquet(root: Path) -> Path:
    """As the datasets library writes it."""
    _table(root / "data" / "train-00000-of-00001.parquet", TRAIN)
    _table(root / "data" / "validation-00000-of-00001.parquet", VALIDATION)
    return root


FORMS: dict[str, Callable[[Path], Path]] = {
    "folders": write_folders,
    "archive": write_inner_folders,
    "hub": write_hub,
    "datasets": write_named_parquet,
}


@pytest.mark.parametrize("write", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    splits = open_data("ade20k", write(tmp_path), holdout=2)
    assert (len(splits.training()), len(splits.calibration), len(splits.test)) == (4, 2, 3)
    assert len(splits.test.classes) == 150
    assert find_overlaps(splits) == []
    images, masks = next(eval_batches(splits.test, SMALL, 10))
    assert images.shape == (3, 3, 16, 24)
    assert masks.shape == (3, 16, 24)
    for index, (_, mask) in enumerate(VALIDATION.values()):
        numbers = makers.random_mask(20 + index, 30 - index, 150, index)
        assert mask == makers.encode_mask(numbers)
        small = np.asarray(Image.fromarray(numbers).resize((24, 16), Image.Resampling.NEAREST)).astype(int)
        assert masks[index].tolist() == np.where(small == 0, IGNORE, small - 1).tolist()


def test_held_out_images_keep_their_masks(tmp_path: Path) -> None:
    splits = open_data("ade20k", write_folders(tmp_path), holdout=2, seed=3)
    for part in (splits.training(), splits.calibration):
        _, masks = next(eval_batches(part, SMALL, 10))
        for name, mask in zip(names_of(part), masks, strict=True):
            index = int(Path(name).stem[-8:])
            numbers = makers.random_mask(20 + index, 30 - index, 150, index)
            small = np.asarray(Image.fromarray(numbers).resize((24, 16), Image.Resampling.NEAREST)).astype(int)
            assert mask.tolist() == np.where(small == 0, IGNORE, small - 1).tolist()


def test_masks_are_cut_as_their_images_are(tmp_path: Path) -> None:
    splits = open_data("ade20k", write_folders(tmp_path))
    images, masks = next(eval_batches(splits.test, Preprocessing(image_size=(16, 16), resize=20), 10))
    assert images.shape[2:] == masks.shape[1:] == (16, 16)
    numbers = makers.random_mask(20, 30, 150, 0).astype(int)[2:18, 7:23]  # the first is 20 pixels high already
    assert masks[0].tolist() == np.where(numbers == 0, IGNORE, numbers - 1).tolist()


def test_real_sample(shared_data: Path, tmp_path: Path) -> None:
    with tarfile.open(shared_data / "ade20k_sample_3.tar") as archive:
        archive.extractall(tmp_path / "raw", filter="data")
    for kind in ("images", "annotations"):
        (tmp_path / kind).mkdir()
        (tmp_path / "raw" / kind).rename(tmp_path / kind / "validation")
    (tmp_path / "raw" / "objectInfo150.csv").rename(tmp_path / "objectInfo150.csv")
    splits = open_data("ade20k", tmp_path)
    assert (splits.train, len(splits.calibration), len(splits.test)) == (None, 1, 2)
    with pytest.raises(MaqeeError, match="only be evaluated"):
        splits.training()
    assert splits.test.classes[:3] == ("wall", "building", "sky")
    assert splits.test.classes[-1] == "flag"
    values = set()
    for part in (splits.calibration, splits.test):
        for _, masks in eval_batches(part, Preprocessing(image_size=(512, 512)), 1):
            values |= set(masks.unique().tolist())
    in_files = {1, 2, 3, 5, 7, 10, 12, 14, 18, 21, 44, 81, 88, 97, 103}
    assert values <= {number - 1 for number in in_files} | {IGNORE}
    assert {0, 2, IGNORE} <= values  # walls, sky and "other" are in every image


# --- mistakes --------------------------------------------------------------------------------------------------------


def _load_all(root: Path) -> None:
    splits = open_data("ade20k", root)
    for part in (splits.training(), splits.calibration, splits.test):
        list(eval_batches(part, SMALL, 10))


def test_mask_of_another_size_is_named(tmp_path: Path) -> None:
    root = write_folders(tmp_path)
    (root / "annotations/training/ADE_train_00000002.png").write_bytes(makers.encode_mask(makers.random_mask(9, 9, 3)))
    assert_refused(lambda: _load_all(root), "ADE_train_00000002.png", "9x9", "28x22")


def test_class_beyond_the_list_is_named(tmp_path: Path) -> None:
    root = write_folders(tmp_path)
    bad = makers.random_mask(20, 30, 151, 0)
    (root / "annotations/validation/ADE_val_00000000.png").write_bytes(makers.encode_mask(bad))
    assert_refused(lambda: _load_all(root), "ADE_val_00000000.png", "151", "1..150")


def test_missing_files_are_named(tmp_path: Path) -> None:
    root = write_folders(tmp_path)
    (root / "annotations/validation/ADE_val_00000001.png").unlink()
    assert_refused(lambda: open_data("ade20k", root), "ADE_val_00000001.jpg", "no mask")


def test_unknown_forms_are_refused(tmp_path: Path) -> None:
    assert_refused(lambda: open_data("ade20k", tmp_path), "parquet")
    (tmp_path / "images").mkdir()
    assert_refused(lambda: open_data("ade20k", tmp_path), "no validation images")


def test_bad_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "validation-0.parquet"
    makers.write_table(path, {"image": [{"bytes": b"x", "path": "x"}], "label": [0]})
    assert_refused(lambda: open_data("ade20k", tmp_path), "annotation")
    makers.write_table(path, {"image": [{"bytes": b"x", "path": "x"}], "annotation": [{"bytes": None, "path": "x"}]})
    assert_refused(lambda: open_data("ade20k", tmp_path), "row 0", "annotation")
    path.write_bytes(b"no parquet")
    assert_refused(lambda: open_data("ade20k", tmp_path), "readable parquet")
    path.rename(tmp_path / "other.parquet")
    assert_refused(lambda: open_data("ade20k", tmp_path), "belongs to no split")


def test_bad_class_list_is_named(tmp_path: Path) -> None:
    root = write_folders(tmp_path)
    (root / "objectInfo150.csv").write_text("Idx,Name\n1,wall\n")
    assert_refused(lambda: open_data("ade20k", root), "objectInfo150.csv", "150")
