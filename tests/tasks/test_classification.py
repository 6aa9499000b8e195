"""Classification: loss, confidence, distillation and accuracy by hand."""

from __future__ import annotations

import math

import pytest
import torch

from maqee.tasks import Classification, max_probability, tasks


def test_confidence_is_the_largest_softmax() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    assert max_probability(logits).tolist() == pytest.approx([0.75, 0.5])
    assert max_probability(logits.bfloat16()).dtype == torch.float32


def test_loss_of_labels_and_of_probabilities() -> None:
    task = tasks["classification"]
    logits = torch.tensor([[0.0, math.log(3.0)]])
    assert task.loss(logits, torch.tensor([1])).item() == pytest.approx(-math.log(0.75))
    half = task.loss(logits, torch.tensor([[0.5, 0.5]])).item()
    assert half == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2)


def test_distillation_by_hand() -> None:
    student, teacher = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 2 * math.log(3.0)]])
    # At T = 2 the teacher says (1/4, 3/4), the student (1/2, 1/2).
    expected = 4 * (0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5))
    task = Classification()
    assert task.distillation(student, teacher, 2.0).item() == pytest.approx(expected)
    assert task.distillation(teacher, teacher, 2.0).item() == pytest.approx(0.0)


def test_accuracy_over_batches() -> None:
    metric = tasks["classification"].metric()
    metric.update(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    metric.update(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    assert metric.compute() == pytest.approx(2 / 3)
