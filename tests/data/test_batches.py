"""A training batch is a function of the step alone, however many processes share it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.data import ArrayImages, Augmentation, ImageSet, TrainBatches, eval_batches, open_data
from maqee.data.transforms import prepare
from maqee.models.preprocessing import Preprocessing
from tests.data import makers
from tests.data.makers import image_set, pixels_of
from tests.helpers import max_difference

EIGHT = Preprocessing(image_size=(8, 8))
AUGMENTATIONS: dict[str, Augmentation] = {
    "nothing": Augmentation(),
    "mixup": Augmentation(mixup=0.4),
    "cutmix": Augmentation(cutmix=1.0),
    "everything": Augmentation(
        padding=2, flip=True, trivial=True, min_scale=0.4, jitter=0.3, erase=0.5, mixup=0.4, cutmix=1.0, mix_share=0.8
    ),
}
by_augmentation = pytest.mark.parametrize("augmentation", AUGMENTATIONS.values(), ids=AUGMENTATIONS)


def _batches(augmentation: Augmentation | None = None, **changes: Any) -> TrainBatches:
    given: dict[str, Any] = {"source": image_set(26), "preprocessing": EIGHT, "batch_size": 8, "seed": 5} | changes
    return TrainBatches(augmentation=augmentation or Augmentation(), **given)


def _numbered(count: int) -> ImageSet:
    """Images that can be told apart by their value: number i is all i."""
    pixels = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(count, 3, 8, 8)
    return ImageSet("numbered", ArrayImages(pixels.contiguous()), torch.arange(count), tuple(map(str, range(count))))


def _same(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> bool:
    return torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


@by_augmentation
def test_batch_is_a_pure_function_of_the_step(augmentation: Augmentation) -> None:
    batches = _batches(augmentation)
    first = {step: batches.batch(step) for step in range(7)}
    torch.manual_seed(99)  # neither the global stream nor the order of asking matters
    for step in (6, 0, 3, 3, 1):
        assert _same(batches.batch(step), first[step])
        assert _same(_batches(augmentation).batch(step), first[step])


@by_augmentation
def test_steps_and_seeds_differ(augmentation: Augmentation) -> None:
    batches = _batches(augmentation)
    assert not torch.equal(batches.batch(0)[0], batches.batch(1)[0])
    assert not torch.equal(batches.batch(0)[0], batches.batch(3)[0])  # first of the next epoch
    assert not torch.equal(batches.batch(0)[0], _batches(augmentation, seed=6).batch(0)[0])


@pytest.mark.parametrize("name", ["mixup", "cutmix", "everything"])
def test_variation_changes_from_step_to_step(name: str) -> None:
    """The weights of the mixtures, in no order, do not tell which images were drawn: only the variation differs."""
    batches = _batches(AUGMENTATIONS[name], source=_numbered(8))
    weights = [sorted(batches.batch(step)[1].flatten().tolist()) for step in range(5)]
    assert len({tuple(step) for step in weights}) == 5


@by_augmentation
@pytest.mark.parametrize("world", [2, 4])
def test_processes_together_see_what_one_would(augmentation: Augmentation, world: int) -> None:
    alone = _batches(augmentation)
    ranks = [_batches(augmentation, rank=rank, world=world) for rank in range(world)]
    for step in range(5):
        images, targets = (torch.cat(parts) for parts in zip(*(rank.batch(step) for rank in ranks), strict=True))
        expected_images, expected_targets = alone.batch(step)
        assert max_difference(images, expected_images) < 1e-6
        assert torch.equal(targets, expected_targets)


def test_processes_agree_on_images_from_files(tmp_path: Path) -> None:
    source = open_data("folder", makers.write_folder(tmp_path)).training()
    augmentation = AUGMENTATIONS["everything"]
    alone = _batches(augmentation, source=source, batch_size=4)
    ranks = [_batches(augmentation, source=source, batch_size=4, rank=rank, world=2) for rank in range(2)]
    images, targets = (torch.cat(parts) for parts in zip(*(rank.batch(2) for rank in ranks), strict=True))
    assert max_difference(images, alone.batch(2)[0]) < 1e-6
    assert torch.equal(targets, alone.batch(2)[1])


@settings(max_examples=30)
@given(count=st.integers(1, 40), data=st.data(), epoch=st.integers(0, 3), seed=st.integers(0, 2**31))
def test_an_epoch_shows_each_image_at_most_once(count: int, data: st.DataObject, epoch: int, seed: int) -> None:
    batch_size = data.draw(st.integers(1, count))
    batches = _batches(source=_numbered(count), batch_size=batch_size, seed=seed)
    steps = batches.steps_per_epoch
    shown = [label for step in range(steps) for label in batches.batch(epoch * steps + step)[1].tolist()]
    assert len(shown) == len(set(shown)) == count // batch_size * batch_size


def test_epochs_are_shuffled_anew_and_leave_nobody_out_for_ever() -> None:
    batches = _batches(source=_numbered(26))
    epochs = [torch.cat([batches.batch(3 * epoch + step)[1] for step in range(3)]).tolist() for epoch in range(12)]
    assert len({tuple(epoch) for epoch in epochs}) == 12
    assert {label for epoch in epochs for label in epoch} == set(range(26))


def test_images_keep_their_labels() -> None:
    images, labels = _batches(source=_numbered(26)).batch(4)
    expected = (labels.float() / 255 - 0.5) / 0.5
    assert max_difference(images, expected[:, None, None, None].expand(8, 3, 8, 8)) < 1e-6


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_mixed_images_keep_their_targets(name: str) -> None:
    """Of images that are all black but for one white, what is white is in proportion to the white one's target."""
    pixels = torch.zeros(10, 3, 64, 64, dtype=torch.uint8)
    pixels[3] = 255
    source = ImageSet("one white", ArrayImages(pixels), (torch.arange(10) == 3).long(), ("black", "white"))
    plain = Preprocessing(image_size=(64, 64), mean=(0.0,) * 3, std=(1.0,) * 3)
    batches = _batches(AUGMENTATIONS[name], source=source, batch_size=10, preprocessing=plain)
    for step in range(5):
        images, targets = batches.batch(step)
        assert targets.shape == (10, 2)
        assert max_difference(targets.sum(dim=1), torch.ones(10)) < 1e-6
        assert max_difference(images.mean(dim=(1, 2, 3)), targets[:, 1]) < 0.05
        assert float(targets[:, 1].sum()) == pytest.approx(1, abs=1e-5)  # each image is somebody's partner once


def test_targets_are_labels_unless_images_are_mixed() -> None:
    assert _batches().batch(0)[1].dtype == torch.int64
    targets = _batches(AUGMENTATIONS["everything"]).batch(0)[1]
    assert (targets.shape, targets.dtype) == ((8, 3), torch.float32)


def test_images_come_at_the_models_size_and_normalised() -> None:
    wanted = Preprocessing(image_size=(12, 10), mean=(0.0, 0.5, 1.0), std=(1.0, 2.0, 4.0))
    images, _ = _batches(preprocessing=wanted).batch(0)
    assert images.shape == (8, 3, 12, 10)
    lows, highs = images.amin(dim=(0, 2, 3)), images.amax(dim=(0, 2, 3))
    for channel, (mean, std) in enumerate(zip(wanted.mean, wanted.std, strict=True)):
        assert float(lows[channel]) == pytest.approx((0 - mean) / std, abs=0.05)
        assert float(highs[channel]) == pytest.approx((1 - mean) / std, abs=0.05)


# --- evaluation ------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(count=st.integers(1, 30), batch_size=st.integers(1, 40))
def test_eval_batches_cover_all_images_in_order(count: int, batch_size: int) -> None:
    source = _numbered(count)
    batches = list(eval_batches(source, EIGHT, batch_size))
    assert [len(labels) for _, labels in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert torch.equal(torch.cat([labels for _, labels in batches]), source.targets)
    assert torch.equal(torch.cat([images for images, _ in batches]), prepare(pixels_of(source), EIGHT))


def test_eval_batches_of_files_do_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    source = open_data("folder", makers.write_folder(tmp_path)).test
    smaller = Preprocessing(image_size=(6, 6), resize=8)
    whole = next(eval_batches(source, smaller, 100))
    parts = list(eval_batches(source, smaller, 3))
    assert whole[0].shape == (8, 3, 6, 6)
    assert torch.equal(whole[0], torch.cat([images for images, _ in parts]))
    assert torch.equal(whole[1], torch.cat([labels for _, labels in parts]))
