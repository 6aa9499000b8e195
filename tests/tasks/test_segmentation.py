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
from maqee.training import exits_recipe, read_recipe
from maqee.training.shipped import find_recipe, list_recipes

CLASSES, GRID, SIZE = 4, (3, 5), (7, 11)
VARIANTS = tuple(segmentation.CONFIDENCES)
FROM_ZERO = ("segmentation-margin", "segmentation-entropy", "segmentation-sure")  # the others begin at 1 / classes


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


@pytest.mark.parametrize("size", [SIZE, (6, 5), (3, 5), (1, 2), (2, 17)])
def test_logits_are_stretched_as_torch_does_it(size: tuple[int, int]) -> None:
    logits, _ = batch(0)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):  # as in training: the result is in single precision all the same
        stretched = stretch(ours, size)
    wanted = F.interpolate(theirs, size, mode="bilinear", align_corners=False)
    weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1))
    for pictures in (stretched, wanted):
        (pictures * weights).sum().backward()
    torch.testing.assert_close(stretched, wanted)
    torch.testing.assert_close(ours.grad, theirs.grad)


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
    monkeypatch.setattr(segmentation, "_AT_ONCE_ON_CPU", 2 * CLASSES * SIZE[0] * SIZE[1])
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
        "segmentation-quantile-10": np.quantile(flat, 0.1, axis=1),
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
    assert task.confidence(unsure).tolist() == pytest.approx([0 if name in FROM_ZERO else 1 / CLASSES] * 2, abs=1e-6)
    assert task.confidence(sure.bfloat16()).tolist() == pytest.approx([1.0] * 2)


def test_one_doubtful_corner_is_seen_by_patches_and_not_by_the_median() -> None:
    logits = torch.zeros(1, 2, 12, 12)
    logits[:, 0] = 20
    logits[:, 0, :3, :3] = 0
    assert pixels.median_confidence(logits).item() == pytest.approx(1.0)
    assert pixels.patch_confidence(logits).item() < 0.6
    assert pixels.mean_confidence(logits).item() == pytest.approx((135 + 9 * 0.5) / 144)


def four_cells() -> Tensor:
    """Logits (1, 3, 2, 2) with these probabilities, row by row: a sure cell, two doubtful ones, a third class."""
    cells = [[0.92, 0.04, 0.04], [0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.1, 0.7]]
    return torch.tensor(cells).log().T.reshape(1, 3, 2, 2)


def test_confidences_by_hand() -> None:
    entropies = [
        -sum(value * math.log(value) for value in cell)
        for cell in ([0.92, 0.04, 0.04], [0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.1, 0.7])
    ]
    expected = {
        "segmentation": (0.92 + 0.6 + 0.5 + 0.7) / 4,
        "segmentation-median": 0.65,  # between 0.6 and 0.7
        "segmentation-quantile": 0.575,  # of 0.5, 0.6, 0.7, 0.92: three quarters of the way from 0.5 to 0.6
        "segmentation-quantile-10": 0.53,
        "segmentation-patch": 0.68,  # a single patch
        "segmentation-patch-10": 0.68,
        "segmentation-margin": (0.88 + 0.3 + 0.1 + 0.5) / 4,
        "segmentation-entropy": 1 - sum(entropies) / 4 / math.log(3),
        "segmentation-sure": 0.25,
        "segmentation-classes": ((0.92 + 0.6 + 0.5) / 3 + 0.7) / 2,  # class 1 is nowhere the likeliest
        # Class 0: 2.02 of its 3 cells, 0.2 elsewhere. Class 2: 0.7 of its one cell, 0.24 elsewhere.
        "segmentation-iou": (2.02 / 3.2 + 0.7 / 1.24) / 2,
    }
    assert set(expected) == set(VARIANTS)
    for name, value in expected.items():
        assert tasks[name].confidence(four_cells()).tolist() == pytest.approx([value], abs=1e-6), name


def test_a_region_is_four_by_four_cells_and_a_tenth_of_them_may_be_doubtful() -> None:
    logits = torch.zeros(1, 2, 4, 44)  # eleven regions side by side
    logits[:, 0] = 40
    logits[:, 0, :, :4] = 0
    assert pixels.region_confidence(logits).item() == pytest.approx(1.0)  # the second of eleven is the tenth
    logits[:, 0, :, 4:6] = 0
    assert pixels.region_confidence(logits).item() == pytest.approx(0.75)


def test_a_small_object_in_doubt_counts_by_class_and_not_by_cell() -> None:
    logits = torch.zeros(1, 2, 10, 10)
    logits[:, 0] = 40
    logits[:, :, 0, 0] = torch.tensor([0.4, 0.6]).log()
    assert pixels.mean_confidence(logits).item() == pytest.approx(0.996)
    assert pixels.class_confidence(logits).item() == pytest.approx(0.8)
    assert pixels.expected_iou(logits).item() == pytest.approx((99 / 99.4 + 0.6) / 2)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_single_class_is_certain(name: str) -> None:
    assert tasks[name].confidence(torch.randn(2, 1, 5, 6)).tolist() == [1, 1]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), classes=st.integers(2, 6), size=st.integers(1, 9), scale=st.floats(0, 1e4))
def test_confidences_are_shares_and_do_not_depend_on_the_batch(
    seed: int, classes: int, size: int, scale: float
) -> None:
    logits = scale * torch.randn(3, classes, size, size + 2, generator=torch.Generator().manual_seed(seed))
    for name in VARIANTS:
        together = tasks[name].confidence(logits)
        assert together.shape == (3,)
        assert bool(((together >= 0) & (together <= 1)).all()), name
        alone = [tasks[name].confidence(logits[place : place + 1]).item() for place in range(3)]
        assert together.tolist() == pytest.approx(alone, abs=1e-5), name


@pytest.mark.parametrize("name", VARIANTS)
def test_confidences_can_be_recorded_on_a_gpu(gpu: torch.device, name: str) -> None:
    """Exits are run as CUDA graphs, which allow no step that waits for the device."""
    logits = [3 * torch.randn(4, CLASSES, 6, 9, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    given, confidence = logits[0].to(gpu), tasks[name].confidence
    side = torch.cuda.Stream(gpu)
    with torch.cuda.stream(side):
        confidence(given)  # what is set up on first use must not be recorded
    torch.cuda.current_stream(gpu).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = confidence(given)
    given.copy_(logits[1])
    graph.replay()
    assert found.tolist() == pytest.approx(confidence(logits[1]).tolist(), abs=1e-5)


def test_names_in_stored_plans_keep_their_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that were written with these names must go on deciding as they did, whatever new work begins with."""
    monkeypatch.setattr(segmentation, "DEFAULT", "segmentation-iou")
    logits = 2 * torch.randn(2, CLASSES, 6, 9, generator=torch.Generator().manual_seed(0))
    published = {
        "segmentation": pixels.mean_confidence,
        "segmentation-median": pixels.median_confidence,
        "segmentation-quantile": pixels.low_confidence,
        "segmentation-patch": pixels.patch_confidence,
    }
    assert {name: segmentation.CONFIDENCES[name] for name in published} == published
    for name, function in published.items():
        assert torch.equal(tasks[name].confidence(logits), function(logits))
    assert (pixels.LOW_SHARE, pixels.PATCH_SHARE, pixels.PATCH_CELLS) == (0.25, 0.01, 3)
    assert (pixels.LOWEST_SHARE, pixels.REGION_SHARE, pixels.REGION_CELLS, pixels.SURE) == (0.1, 0.1, 4, 0.9)


def test_new_work_begins_with_the_default() -> None:
    assert segmentation.DEFAULT in VARIANTS
    assert exits_recipe.TASKS["masks"] == segmentation.DEFAULT
    shipped = [read_recipe(find_recipe(name)) for name in list_recipes()]
    named = {recipe.task for recipe in shipped if tasks[recipe.task].targets == "masks"}
    assert named == {segmentation.DEFAULT}


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
