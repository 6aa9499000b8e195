"""BCCD: the published splits, in memory, from the tar, its folder, or unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import torch

from maqee.boxes import PADDING
from maqee.data import ArrayImages, find_overlaps, open_data
from maqee.errors import MaqeeError
from tests.data.readers.test_coco import box, write_part


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Three parts of three small images."""
    for name in ("train", "val", "test"):
        write_part(tmp_path / "bccd", name, [box(0)])
    return tmp_path / "bccd"


def test_folder_and_tar_are_the_same(small: Path) -> None:
    with tarfile.open(small.parent / "bccd_9.tar", "w") as archive:
        archive.add(small, arcname="")
    for path in (small, small.parent / "bccd_9.tar", small.parent):
        splits = open_data("bccd", path)
        assert splits.train is not None
        assert [len(part) for part in (splits.train, splits.calibration, splits.test)] == [3, 3, 3]
        assert isinstance(splits.test.images, ArrayImages)
        assert splits.test.images.pixels.shape == (3, 3, 480, 640)


def test_holdout_comes_out_of_train_and_val_together(small: Path) -> None:
    write_part(small, "val", [box(0), box(0), box(1)])  # more boxes than in train
    splits = open_data("bccd", small, holdout=2)
    assert splits.train is not None
    assert [len(splits.train), len(splits.calibration), len(splits.test)] == [4, 2, 3]
    rows = torch.cat([splits.train.targets, splits.calibration.targets])
    assert int((rows[..., 0] != PADDING).sum()) == 4


def test_what_is_missing_is_named(small: Path) -> None:
    (small / "val.json").unlink()
    with pytest.raises(MaqeeError, match=r"val\.json"):
        open_data("bccd", small)
    with pytest.raises(MaqeeError, match=r"0 files bccd\*\.tar"):
        open_data("bccd", small / "train")


def test_real_data(shared_data: Path) -> None:
    splits = open_data("bccd", shared_data)
    assert splits.train is not None
    parts = (splits.train, splits.calibration, splits.test)
    assert [len(part) for part in parts] == [205, 87, 72]
    assert [int((part.targets[..., 0] != PADDING).sum()) for part in parts] == [2804, 1137, 945]
    assert splits.test.classes == ("RBC", "WBC", "Platelets")
    labels = splits.test.targets[..., 0].flatten()
    assert torch.bincount(labels[labels >= 0].long()).tolist() == [805, 71, 69]
    assert find_overlaps(splits) == []
