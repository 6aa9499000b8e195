"""A compact set of hashes knows images again, wherever they lie now."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from maqee.data import ArrayImages, FileEntry, FileImages, ImageSet
from maqee.data.seen import check_unseen, count_seen, hashes_of, write_seen
from maqee.errors import MaqeeError
from maqee.runs import TRAINED_ON
from tests.data.makers import assert_refused, image_set, write_images


@given(trained=st.sets(st.integers(0, 255)), asked=st.lists(st.integers(0, 255)))
def test_counts_are_those_of_plain_sets(
    tmp_path_factory: pytest.TempPathFactory, trained: set[int], asked: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("model")
    write_seen(folder, grey(*trained), "vit-tiny")
    assert count_seen(folder, grey(*asked)) == sum(value in trained for value in asked)


def grey(*values: int) -> ArrayImages:
    """Pictures that are known by their brightness."""
    return ArrayImages(torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2).contiguous())


def test_eight_bytes_an_image_sorted_and_once(tmp_path: Path) -> None:
    write_seen(tmp_path, grey(3, 1, 3, 2), "vit-tiny")
    stored = load_file(tmp_path / TRAINED_ON)["images"]
    assert stored.dtype == np.uint64
    assert stored.shape == (3,)
    assert (np.diff(stored.astype(object)) > 0).all()
    images = grey(3)
    assert stored[np.searchsorted(stored, hashes_of(images))[0]] == int.from_bytes(images.digests()[0][:8], "little")


def test_files_under_other_names(tmp_path: Path) -> None:
    write_images(tmp_path / "here", 5)
    there = tmp_path / "there"
    there.mkdir()
    for number, path in enumerate(sorted((tmp_path / "here").iterdir())[2:]):
        shutil.copy(path, there / f"copy-{9 - number}.png")
    write_images(tmp_path / "new", 4, seed=1)
    write_seen(tmp_path / "model", files(tmp_path / "here"), "vit-tiny")
    assert count_seen(tmp_path / "model", files(there)) == 3
    assert count_seen(tmp_path / "model", files(tmp_path / "new")) == 0


def files(folder: Path) -> FileImages:
    return FileImages([FileEntry(path.name, path) for path in sorted(folder.iterdir())])


def test_what_the_source_was_trained_on_counts_too(tmp_path: Path) -> None:
    write_seen(tmp_path / "first", grey(1, 2), "vit-tiny")
    (tmp_path / "first" / "model.safetensors").touch()
    write_seen(tmp_path / "second", grey(3), tmp_path / "first")
    write_seen(tmp_path / "third", grey(4), str(tmp_path / "first" / "model.safetensors"))
    assert count_seen(tmp_path / "second", grey(1, 2, 3, 4)) == 3
    assert count_seen(tmp_path / "third", grey(1, 2, 3, 4)) == 3


def test_a_folder_that_does_not_say(tmp_path: Path) -> None:
    assert count_seen(tmp_path, grey(1)) is None
    assert check_unseen(tmp_path, image_set(3)) is None


@pytest.mark.parametrize(("seen", "refused"), [(0, False), (2, False), (3, True), (20, True)])
def test_a_tenth_may_be_known(seen: int, refused: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_seen(tmp_path, grey(*range(seen)), "vit-tiny")
    data = ImageSet("greys", grey(*range(20)), torch.zeros(20, dtype=torch.long), ("grey",))
    with caplog.at_level(logging.WARNING):
        if refused:
            words = f"{seen} of 20 calibration images of greys are among those that the model was trained on"
            assert_refused(lambda: check_unseen(tmp_path, data), words, "give the split of the training run")
        else:
            assert check_unseen(tmp_path, data) == seen
    assert (f"{seen} of 20 calibration images" in caplog.text) == (seen == 2)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / TRAINED_ON
    header = {"format": "maqee-trained-on", "version": "1"}
    for damage in (
        lambda: path.write_bytes(b"nothing"),
        lambda: save_file({"images": np.zeros(3, dtype=np.uint64)}, path),
        lambda: save_file({"images": np.zeros(3, dtype=np.uint64)}, path, header | {"version": "2"}),
        lambda: save_file({"pictures": np.zeros(3, dtype=np.uint64)}, path, header),
        lambda: save_file({"images": np.zeros(3)}, path, header),
        lambda: save_file({"images": np.zeros((3, 1), dtype=np.uint64)}, path, header),
    ):
        damage()
        with pytest.raises(MaqeeError, match=TRAINED_ON):
            count_seen(tmp_path, grey(1))
