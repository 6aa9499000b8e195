"""Segmentation against a plain implementation: loops over pixels in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.tasks import Segmentation, pixels, segmentation, tasks
from maqee.tasks.pixels import IGNORE
from maqee.tasks.segmentation import confusion, stretch

CLASSES, GRID, SIZE = 4, (3, 5), (7, 11)
VARIANTS = ("segmentation", "segmentation-median", "segmentation-quantile", "segmentation-patch")


def batch(seed: int, count: int = 3, ignored: float = 0.2) -> tuple[Tensor, Tensor]:
    """Random logits and masks, some of whose pixels do not count."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, CLASSES, *GRID, generator=generator)
    masks = torch.randint(0, CLASSES, (count, *SIZE), generator=generator).to(torch.uint8)
    masks[torch.rand(count, *SIZE, generator=generator) < ignored] = IGNORE
    return logits, masks


def plain_predictions(logits: Tensor) -> NDArray[np.int64]:
    return F.interpolate(logits, SIZE, mode="bilinear", align_corners=False).argmax(dim=1).numpy()


def plain_ious(predicted: NDArray[np.int64], masks: NDArray[np.uint8], present_only: bool) -> list[float]:
    """IoU of each class by counting; classes without pixels are left out."""
    ious = []
    for label in range(CLASSES):
        here, there = (masks == label), (predicted == label) & (masks != IGNORE)
        if here.any() or (there.any() and not present_only):
            ious.append((here & there).sum() / (here | there).sum())
    return ious


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 4))
def test_metric_and_score_agree_with_counting(seed: int, count: int) -> None:
    logits, masks = batch(seed, count)
    task = tasks["segmentation"]
    predicted, truth = plain_predictions(logits), masks.numpy()
    metric = task.metric()
    for start in range(count):  # batches of one: the metric must pool the counts, not the figures
        metric.update(logits[start : start + 1], masks[start : start + 1])
    assert metric.compute() == pytest.approx(np.mean(plain_ious(predicted, truth, present_only=False)))
    counted = truth != IGNORE
    assert metric.details()["pixel accuracy"] == pytest.approx((predicted == truth)[counted].mean())
    expected = [np.mean(plain_ious(predicted[i], truth[i], present_only=True)) for i in range(count)]
    assert task.score(logits, masks).tolist() == pytest.approx(expected, abs=1e-6)


def test_loss_is_the_mean_over_pixels_that_count() -> None:
    logits, masks = batch(0)
    big = F.interpolate(logits, SIZE, mode="bilinear", align_corners=False).log_softmax(dim=1)
    expected = []
    for image in range(3):
        values = [
            -float(big[image, int(masks[image, row, column]), row, column])
            for row in range(SIZE[0])
            for column in range(SIZE[1])
            if masks[image, row, column] != IGNORE
        ]
        expected.append(sum(values) / len(values))
    assert tasks["segmentation"].loss(logits, masks).tolist() == pytest.approx(expected, rel=1e-5)
    smooth = tasks["segmentation"].smoothed(0.1).loss(logits, masks)
    assert torch.isfinite(smooth).all()
    assert not torch.allclose(smooth, torch.tensor(expected))


def test_an_image_without_pixels_that_count_changes_nothing() -> None:
    logits, masks = batch(1)
    task = tasks["segmentation"]
    one, both = task.metric(), task.metric()
    one.update(logits[:1], masks[:1])
    masks[1] = IGNORE
    both.update(logits[:2], masks[:2])
    assert both.compute() == one.compute()
    assert task.loss(logits, masks)[1] == 0
    assert task.score(logits, masks)[1] == 1
    assert task.metric().compute() == 0
    assert task.metric().details() == {"pixel accuracy": 0.0}


def test_perfect_prediction_scores_one() -> None:
    masks = torch.arange(CLASSES, dtype=torch.uint8).repeat(2, SIZE[0], 3)[:, :, : SIZE[1]]
    logits = 50 * F.one_hot(masks.long(), CLASSES).movedim(-1, 1).float()
    task = tasks["segmentation"]
    assert task.score(logits, masks).tolist() == [1, 1]
    assert task.loss(logits, masks).max() < 1e-6


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, masks = batch(2, count=5)
    task = Segmentation()
    whole = confusion(logits, masks), task.loss(logits, masks)
    monkeypatch.setattr(segmentation, "_AT_ONCE", 2 * CLASSES * SIZE[0] * SIZE[1])
    assert torch.equal(confusion(logits, masks), whole[0])
    assert torch.allclose(task.loss(logits, masks), whole[1])


def test_loss_has_gradients_in_half_precision() -> None:
    logits, masks = batch(3)
    half = logits.bfloat16().requires_grad_()
    tasks["segmentation"].loss(half, masks).mean().backward()
    assert half.grad is not None
    assert half.grad.abs().sum() > 0
    assert stretch(half, SIZE).dtype == torch.float32


def test_distillation_is_the_mean_of_the_cells() -> None:
    student, teacher = batch(4)[0], batch(5)[0]
    one, other = (tasks["classification"], tasks["segmentation"])
    cells = [picture.movedim(1, -1).flatten(0, 2) for picture in (student, teacher)]  # (batch * cells, classes)
    expected = one.distillation(cells[0], cells[1], 2.0).view(3, -1).mean(dim=1)
    assert torch.allclose(other.distillation(student, teacher, 2.0), expected, rtol=1e-5)


# --- confidence ------------------------------------------------------------------------------------------------------


def test_confidences_by_numpy() -> None:
    logits = 2 * torch.randn(2, CLASSES, 6, 9, generator=torch.Generator().manual_seed(0))
    cells = torch.softmax(logits, dim=1).amax(dim=1).numpy()
    patches = cells.reshape(2, 2, 3, 3, 3).mean(axis=(2, 4)).reshape(2, -1)
    flat = cells.reshape(2, -1)
    expected = {
        "segmentation": flat.mean(axis=1),
        "segmentation-median": np.median(flat, axis=1),
        "segmentation-quantile": np.quantile(flat, 0.25, axis=1),
        "segmentation-patch": np.quantile(patches, 0.01, axis=1),
    }
    for name, values in expected.items():
        assert tasks[name].confidence(logits).tolist() == pytest.approx(values.tolist(), abs=1e-6), name


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (4, 7)])
def test_confidence_goes_from_chance_to_certainty(name: str, grid: tuple[int, int]) -> None:
    task = tasks[name]
    assert task.name == name
    unsure, sure = torch.zeros(2, CLASSES, *grid), torch.zeros(2, CLASSES, *grid)
    sure[:, 1] = 100
    assert task.confidence(unsure).tolist() == pytest.approx([1 / CLASSES] * 2)
    assert task.confidence(sure.bfloat16()).tolist() == pytest.approx([1.0] * 2)


def test_one_doubtful_corner_is_seen_by_patches_and_not_by_the_median() -> None:
    logits = torch.zeros(1, 2, 12, 12)
    logits[:, 0] = 20
    logits[:, 0, :3, :3] = 0
    assert pixels.median_confidence(logits).item() == pytest.approx(1.0)
    assert pixels.patch_confidence(logits).item() < 0.6
    assert pixels.mean_confidence(logits).item() == pytest.approx((135 + 9 * 0.5) / 144)


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_outputs_of_a_classifier_are_refused() -> None:
    task, (logits, masks) = tasks["segmentation"], batch(0)
    with pytest.raises(MaqeeError, match="segformer"):
        task.loss(logits[:, :, 0, 0], masks)
    with pytest.raises(MaqeeError, match="segformer"):
        task.confidence(logits[:, :, 0, 0])
    with pytest.raises(MaqeeError, match="mask for each image"):
        task.loss(logits, torch.zeros(3, dtype=torch.long))


def test_classification_scores_are_its_accuracy() -> None:
    task = tasks["classification"]
    logits, labels = torch.randn(20, 3), torch.randint(0, 3, (20,))
    metric = task.metric()
    metric.update(logits, labels)
    assert task.score(logits, labels).mean().item() == pytest.approx(metric.compute())
    assert metric.details() == {}
    assert not math.isclose(task.smoothed(0.1).loss(logits, labels).mean(), task.loss(logits, labels).mean())
