"""Detection: overlaps by hand, matching, YOLOS's loss, confidence, score, and mAP against pycocotools."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maqee.boxes import clip_to_image, overlap
from maqee.errors import MaqeeError
from maqee.tasks import Detection, tasks
from maqee.tasks.average_precision import AveragePrecision
from maqee.tasks.matching import match, matching_costs

task = Detection()


def random_output(batch: int, queries: int, classes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(batch, queries, classes + 1, generator=generator)
    return torch.cat([logits, _random_boxes(generator, batch, queries)], dim=-1)


def random_target(counts: list[int], most: int, classes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1000)
    target = torch.zeros(len(counts), most, 5)
    target[..., 0] = -1
    for image, count in enumerate(counts):
        target[image, :count, 0] = torch.randint(0, classes, (count,), generator=generator).float()
        target[image, :count, 1:] = _random_boxes(generator, 1, count)[0]
    return target


def _random_boxes(generator: torch.Generator, *shape: int) -> Tensor:
    size = 0.1 + 0.3 * torch.rand(*shape, 2, generator=generator)
    centre = size / 2 + (1 - size) * torch.rand(*shape, 2, generator=generator)
    return torch.cat([centre, size], dim=-1)


def answer_for(target: Tensor, queries: int, classes: int, sureness: float = 8.0) -> Tensor:
    """The output of a perfect detector: the first queries find the boxes, the others nothing."""
    output = torch.zeros(len(target), queries, classes + 5)
    output[..., classes] = sureness
    for image, rows in enumerate(target):
        for query, row in enumerate(rows[rows[:, 0] >= 0]):
            output[image, query, : classes + 1] = 0
            output[image, query, int(row[0])] = sureness
            output[image, query, -4:] = row[1:]
    return output


# --- boxes ------------------------------------------------------------------------------------------------------------

OVERLAPS = {
    "the same": ((0.5, 0.5, 0.2, 0.4), (0.5, 0.5, 0.2, 0.4), 1.0, 1.0),
    "side by side": ((0.25, 0.5, 0.5, 1.0), (0.75, 0.5, 0.5, 1.0), 0.0, 0.0),
    "half": ((0.25, 0.5, 0.5, 1.0), (0.5, 0.5, 1.0, 1.0), 0.5, 0.5),
    "apart": ((0.125, 0.5, 0.25, 1.0), (0.875, 0.5, 0.25, 1.0), 0.0, -0.5),
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_overlap_by_hand(case: str) -> None:
    one, other, iou, giou = OVERLAPS[case]
    got = overlap(torch.tensor(one), torch.tensor(other))
    assert [float(value) for value in got] == pytest.approx([iou, giou], abs=1e-6)


def test_overlap_of_boxes_without_area_is_finite() -> None:
    assert all(value.isfinite() for value in overlap(torch.zeros(4), torch.zeros(4)))


CLIPS: dict[str, tuple[tuple[float, ...], tuple[float, ...] | None, bool]] = {
    "inside": ((10, 20, 30, 30), (0.25, 0.7, 0.3, 0.6), False),
    "over the edge": ((90, 0, 30, 50), (0.95, 0.5, 0.1, 1.0), True),
    "rounding": ((90, 0, 10.4, 50), (0.95, 0.5, 0.1, 1.0), False),
    "outside": ((120, 0, 30, 50), None, True),
    "no area": ((10, 10, 0, 5), None, False),
}


@pytest.mark.parametrize("case", CLIPS)
def test_clipping(case: str) -> None:
    box, row, cut = CLIPS[case]
    clipped = clip_to_image(box, (100, 50))
    assert clipped.cut == cut
    assert clipped.row == (None if row is None else pytest.approx(row))


@pytest.mark.parametrize("box", [(1, 2, 3), (1, 2, -3, 4), (1, 2, float("nan"), 4), ("a", 2, 3, 4)], ids=str)
def test_numbers_that_are_no_box(box: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"side|left, top|convert"):
        clip_to_image(box, (100, 50))


# --- matching and loss ------------------------------------------------------------------------------------------------


def test_matching_is_the_best_of_all_assignments() -> None:
    output, target = random_output(4, 5, 3), random_target([3, 2, 0, 1], 3, 3)
    found = match(output, target)
    costs = matching_costs(output, target)
    for image, count in enumerate([3, 2, 0, 1]):
        queries = found[image, :count].tolist()
        assert found[image, count:].eq(-1).all()
        assert len(set(queries)) == count
        got = sum(float(costs[image, query, box]) for box, query in enumerate(queries))
        best = min(
            sum(float(costs[image, query, box]) for box, query in enumerate(order))
            for order in itertools.permutations(range(5), count)
        )
        assert got == pytest.approx(best, abs=1e-5)


def test_more_boxes_than_queries() -> None:
    found = match(random_output(1, 2, 3), random_target([4], 4, 3))
    assert sorted(found[0].tolist()) == [-1, -1, 0, 1]
    assert task.loss(random_output(1, 2, 3), random_target([4], 4, 3)).isfinite().all()


def _untyped(function: Any) -> Any:
    return function


def test_loss_is_that_of_transformers_for_a_single_image() -> None:
    """With one image in the batch, dividing by the batch's totals and by the image's are the same thing."""
    import transformers
    from transformers.loss import loss_for_object_detection

    make_config: Any = transformers.YolosConfig
    config, theirs = make_config(num_labels=3), _untyped(loss_for_object_detection.ForObjectDetectionLoss)
    for seed in range(5):
        output, target = random_output(1, 7, 3, seed), random_target([4], 6, 3, seed)
        labels = [{"class_labels": target[0, :4, 0].long(), "boxes": target[0, :4, 1:]}]
        expected, _, _ = theirs(output[..., :-4], labels, torch.device("cpu"), output[..., -4:], config, None, None)
        assert float(task.loss(output, target)[0]) == pytest.approx(float(expected), rel=1e-5)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(5, 9), st.integers(0, 100))
@settings(max_examples=20)
def test_loss_of_an_image_does_not_depend_on_its_batch_or_padding(counts: list[int], most: int, seed: int) -> None:
    output, target = random_output(len(counts), 6, 3, seed), random_target(counts, most, 3, seed)
    together = task.loss(output, target)
    for image, count in enumerate(counts):
        alone = task.loss(output[image : image + 1], target[image : image + 1, : max(1, count)])
        assert float(alone[0]) == pytest.approx(float(together[image]), rel=1e-4)


def test_perfect_answer_has_hardly_any_loss_and_gradients_reach_everything() -> None:
    target = random_target([3, 1, 0], 4, 3)
    assert task.loss(answer_for(target, 6, 3, sureness=20), target).max() < 1e-4
    output = random_output(3, 6, 3).requires_grad_()
    task.loss(output, target).sum().backward()
    assert output.grad is not None
    assert (output.grad[..., :-4].abs().sum(dim=(1, 2)) > 0).all()
    assert (output.grad[..., -4:].abs().sum(dim=(1, 2)) > 0).tolist() == [True, True, False]


# --- confidence, score, distillation ----------------------------------------------------------------------------------


def test_confidence_by_hand() -> None:
    """Two queries find something with 0.6 and 0.8; where none does, the mean of "nothing" counts."""
    some = torch.tensor([[0.6, 0.1, 0.3], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]]).log()
    none = torch.tensor([[0.1, 0.1, 0.8], [0.2, 0.1, 0.7], [0.05, 0.05, 0.9]]).log()
    output = torch.cat([torch.stack([some, none]), torch.full((2, 3, 4), 0.5)], dim=-1)
    assert task.confidence(output).tolist() == pytest.approx([0.7, 0.8])


def test_score_counts_hits_false_alarms_and_misses() -> None:
    target = random_target([2, 2, 2, 0, 0], 3, 3)
    output = answer_for(target, 4, 3)
    output[1, 1, :3] = torch.tensor([8.0, 0, 0]).roll(int(target[1, 1, 0]) + 1)  # second box of image 1: wrong class
    output[2, 2] = output[2, 0]  # the first box of image 2 twice: the second time a false alarm
    output[4, 0, :4] = torch.tensor([8.0, 0, 0, 0])  # something in the empty image 4
    scores = task.score(output, target)
    assert scores.tolist() == pytest.approx([1.0, 2 * 1 / 4, 2 * 2 / 5, 1.0, 0.0])


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 1000))
@settings(max_examples=20)
def test_ranges(counts: list[int], seed: int) -> None:
    output, target = random_output(len(counts), 6, 3, seed), random_target(counts, 4, 3, seed)
    for values in (task.confidence(output), task.score(output, target)):
        assert values.shape == (len(counts),)
        assert ((values >= 0) & (values <= 1)).all()


def test_distillation_is_zero_for_the_teacher_itself_and_ignores_boxes_of_nothing() -> None:
    teacher = answer_for(random_target([2], 3, 3), 5, 3, sureness=30)
    assert task.distillation(teacher, teacher, 2.0).abs().max() < 1e-6
    moved = teacher.clone()
    moved[0, 4, -4:] = 0.9  # a query with which the teacher sees nothing
    assert task.distillation(moved, teacher, 2.0).abs().max() < 1e-5
    moved[0, 0, -4:] += 0.1
    assert float(task.distillation(moved, teacher, 2.0)) == pytest.approx(5 * 0.4 / 2, rel=1e-3)


def test_label_smoothing_is_refused() -> None:
    with pytest.raises(MaqeeError, match="label_smoothing"):
        task.smoothed(0.1)


# --- average precision ------------------------------------------------------------------------------------------------


def collect(output: Tensor, target: Tensor, pieces: int = 2) -> AveragePrecision:
    metric = task.metric()
    for some, others in zip(output.chunk(pieces), target.chunk(pieces), strict=True):
        metric.update(some, others)
    return metric


def by_pycocotools(metric: AveragePrecision) -> tuple[float, float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth, results = metric.as_coco()
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = COCO()
        dataset.dataset = truth
        dataset.createIndex()
        run = COCOeval(dataset, dataset.loadRes(results), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return float(run.stats[1]), float(run.stats[0])


@pytest.mark.parametrize("seed", range(6))
def test_average_precision_agrees_with_pycocotools(seed: int) -> None:
    counts = [seed % 4, 3, 0, 5, 1, 2]
    target = random_target(counts, 6, 4, seed)
    noise = 0.02 * torch.randn(6, 20, 9, generator=torch.Generator().manual_seed(seed))
    good, bad = answer_for(target, 20, 4, sureness=3) + noise, random_output(6, 20, 4, seed)
    output = torch.cat([good[:, :10], bad[:, 10:]], dim=1)
    metric = collect(output, target)
    expected = by_pycocotools(metric)
    assert (metric.compute(), metric.details()["mAP@[.5:.95]"]) == pytest.approx(expected, abs=1e-9)
    assert 0.01 < expected[1] < expected[0] < 0.99  # else the test says nothing


def test_more_than_a_hundred_detections_agree_too() -> None:
    target = random_target([30, 20], 30, 2)
    metric = collect(torch.cat([answer_for(target, 40, 2, 1.0), random_output(2, 120, 2)], dim=1), target)
    assert metric.compute() == pytest.approx(by_pycocotools(metric)[0], abs=1e-9)


def test_perfect_empty_and_missing_answers() -> None:
    target = random_target([3, 1], 4, 3)
    assert collect(answer_for(target, 6, 3), target).compute() == pytest.approx(1.0)
    empty = random_target([0, 0], 4, 3)
    assert collect(random_output(2, 6, 3), empty).compute() == 0.0
    assert task.metric().compute() == 0.0


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    with pytest.raises(MaqeeError, match=r"maqee\[det\]"):
        tasks["detection"].metric()
