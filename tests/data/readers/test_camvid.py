"""CamVid: both forms, its own splits, pixels that do not count, every mistake named, and masks that follow images."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from maqee.data import ArrayImages, Augmentation, ImageSet, TrainBatches, eval_batches, find_overlaps, open_data
from maqee.data.mask_targets import MASKS
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing
from maqee.tasks.pixels import IGNORE
from tests.data import makers
from tests.data.makers import assert_refused, names_of


def test_tar_and_folder_give_the_same(tmp_path: Path) -> None:
    members = makers.camvid_members()
    tar = makers.write_tar(tmp_path / "camvid_small.tar", members)
    folder = makers.write_members(tmp_path / "unpacked", members)
    for path in (tar, tmp_path, folder):
        splits = open_data("camvid", path)
        for part, name in ((splits.training(), "train"), (splits.calibration, "val"), (splits.test, "test")):
            assert part.name == f"camvid {name}"
            assert part.classes == ("sky", "road", "car")
            images, masks = next(eval_batches(part, Preprocessing(image_size=(12, 16)), 10))
            assert images.shape == (4, 3, 12, 16)
            for index in range(4):
                with Image.open(io.BytesIO(members[f"{name}/masks/{name}_{index}.png"])) as file:
                    numbers = np.asarray(file)
                assert masks[index].tolist() == np.where(numbers == 3, IGNORE, numbers).tolist()


def test_calibration_is_never_trained_on(tmp_path: Path) -> None:
    makers.write_members(tmp_path, makers.camvid_members())
    own = open_data("camvid", tmp_path)
    assert {Path(name).stem.split("_")[0] for name in names_of(own.calibration)} == {"val"}
    held = open_data("camvid", tmp_path, holdout=3, seed=1)
    assert (len(held.training()), len(held.calibration), len(held.test)) == (5, 3, 4)
    assert not set(names_of(held.training())) & set(names_of(held.calibration))
    assert find_overlaps(held) == []
    assert names_of(held.test) == names_of(own.test)


def test_real_camvid(shared_data: Path) -> None:
    splits = open_data("camvid", shared_data)
    assert (len(splits.training()), len(splits.calibration), len(splits.test)) == (367, 101, 233)
    assert splits.test.targets.shape == (233, 360, 480)
    assert splits.test.targets.unique().tolist() == [*range(11), IGNORE]
    assert find_overlaps(splits) == []
    # What the classes are called is what they look like: the sky is bright and above, the road lies below.
    assert isinstance(splits.test.images, ArrayImages)
    pixels, masks = splits.test.images.pixels[::20].float().mean(dim=1), splits.test.targets[::20]
    rows = torch.arange(360.0)[None, :, None].expand(masks.shape)
    of = {name: masks == label for label, name in enumerate(splits.test.classes)}
    assert pixels[of["sky"]].mean() > 1.5 * pixels[of["road"]].mean()
    assert rows[of["sky"]].mean() < rows[of["building"]].mean() < rows[of["car"]].mean() < rows[of["road"]].mean()


# --- mistakes --------------------------------------------------------------------------------------------------------


def _changed(tmp_path: Path, changes: dict[str, bytes | None]) -> Path:
    members = {name: data for name, data in (makers.camvid_members() | changes).items() if data is not None}
    return makers.write_tar(tmp_path / "camvid.tar", members)


MASK = "test/masks/test_1.png"
MISTAKES: dict[str, tuple[dict[str, bytes | None], tuple[str, ...]]] = {
    "size": ({MASK: makers.encode_mask(makers.random_mask(12, 8, 2))}, (MASK, "8x12", "16x12")),
    "class": ({MASK: makers.encode_mask(makers.random_mask(12, 16, 7))}, (MASK, "0..2", "3, 255")),
    "colours": ({MASK: makers.encode(makers.random_pixels(1, 16)[0, :, :12])}, (MASK, "RGB")),
    "damaged mask": ({MASK: b"\x89PNG nothing"}, (MASK, "decoded")),
    "damaged image": ({"val/images/val_0.png": b"nothing"}, ("val/images/val_0.png", "decoded")),
    "no mask": ({MASK: None}, ("test/images/test_1.png", "no mask")),
    "no image": ({"train/images/train_2.png": None}, ("train/masks/train_2.png", "no image")),
    "no split": ({f"val/{k}/val_{i}.png": None for k in ("images", "masks") for i in range(4)}, ("val", "no images")),
    "no list": ({"classes.json": None}, ("classes.json",)),
    "bad list": ({"classes.json": b'{"classes": 3}'}, ("classes.json", "ignore_index")),
    "bad ignore": ({"classes.json": b'{"classes": ["a", "b", "c"], "ignore_index": 999}'}, ("from 0 to 255",)),
}


@pytest.mark.parametrize(("changes", "fragments"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named(tmp_path: Path, changes: dict[str, bytes | None], fragments: tuple[str, ...]) -> None:
    path = _changed(tmp_path, changes)
    assert_refused(lambda: open_data("camvid", path), *fragments)


def test_images_of_two_sizes_are_refused(tmp_path: Path) -> None:
    other = makers.camvid_members(size=(10, 10))
    changes = {name: other[name] for name in ("train/images/train_3.png", "train/masks/train_3.png")}
    assert_refused(lambda: open_data("camvid", _changed(tmp_path, {**changes})), "train_3.png", "10x10", "16x12")


def test_wrong_paths_are_refused(tmp_path: Path) -> None:
    assert_refused(lambda: open_data("camvid", tmp_path), "camvid*.tar")
    (tmp_path / "camvid.tar").write_bytes(b"no tar at all")
    assert_refused(lambda: open_data("camvid", tmp_path), "damaged")
    assert_refused(lambda: open_data("camvid", tmp_path / "nowhere"), "does not exist")


def test_masks_are_checked_however_a_set_is_made() -> None:
    images = ArrayImages(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
    masks = torch.zeros(2, 4, 4, dtype=torch.uint8)
    masks[1, 2, 2] = 9
    assert_refused(lambda: ImageSet("mine", images, masks, ("a", "b"), MASKS), "1 masks", "9 of image 1", "0..1")
    with pytest.raises(MaqeeError, match="height"):
        ImageSet("mine", images, torch.zeros(2, dtype=torch.uint8), ("a", "b"), MASKS)


# --- masks follow their images ---------------------------------------------------------------------------------------


def _matched(count: int = 6, size: tuple[int, int] = (24, 32)) -> ImageSet:
    """Images that show their own masks: red, green and blue are classes 0, 1 and 2, in large blocks."""
    coarse = torch.randint(0, 3, (count, 3, 4), generator=torch.Generator().manual_seed(2))
    masks = coarse.repeat_interleave(size[0] // 3, dim=1).repeat_interleave(size[1] // 4, dim=2)
    pixels = torch.nn.functional.one_hot(masks, 3).movedim(-1, 1) * 255
    return ImageSet("matched", ArrayImages(pixels.to(torch.uint8)), masks.to(torch.uint8), ("r", "g", "b"), MASKS)


def _agreement(images: Tensor, masks: Tensor) -> float:
    """Share of counted pixels at which the image's colour is its mask's."""
    images = torch.nn.functional.interpolate(images, masks.shape[1:], mode="nearest-exact")
    counted = masks != IGNORE
    return float((images.argmax(dim=1) == masks)[counted].float().mean())


@pytest.mark.parametrize("changes", [{}, {"flip": True}, {"min_scale": 0.2}, {"padding": 6}], ids=str)
@pytest.mark.parametrize("resize", [None, 30])
def test_masks_go_where_their_images_go(changes: dict[str, float], resize: int | None) -> None:
    augmentation = Augmentation(**changes)  # type: ignore[arg-type]
    preprocessing = Preprocessing(image_size=(24, 32) if resize is None else (24, 24), resize=resize)
    batches = TrainBatches(_matched(), preprocessing, augmentation, 6, seed=3)
    for step in range(5):
        images, masks = batches.batch(step)
        assert masks.dtype == torch.uint8
        assert masks.shape == (6, 24, 24 if resize else 32)
        assert _agreement(images, masks) > 0.93
        assert bool((masks == IGNORE).any()) == ("padding" in changes)


def test_masks_keep_their_size_where_the_whole_image_is_scaled() -> None:
    images, masks = next(eval_batches(_matched(), Preprocessing(image_size=(48, 48)), 6))
    assert (images.shape[2:], masks.shape[1:]) == ((48, 48), (24, 32))
    assert _agreement(images, masks) > 0.95


def test_masks_cannot_be_mixed() -> None:
    wanted = Preprocessing(image_size=(24, 32))
    assert_refused(lambda: TrainBatches(_matched(), wanted, Augmentation(mixup=0.2), 2, 0), "matched", "mixup")


@given(shift=st.tuples(st.integers(0, 4), st.integers(0, 4)))
def test_shifted_masks_are_ignored_outside(shift: tuple[int, int]) -> None:
    masks = torch.randint(0, 3, (1, 5, 6), dtype=torch.uint8)
    shifted = MASKS.shift(masks, torch.tensor([shift]), 2)[0]
    for row in range(5):
        for column in range(6):
            source = row + shift[0] - 2, column + shift[1] - 2
            inside = 0 <= source[0] < 5 and 0 <= source[1] < 6
            assert shifted[row, column] == (masks[0, *source] if inside else IGNORE)
