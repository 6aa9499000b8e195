"""LGViT's losses, each worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from maqee.training import exit_losses as losses


def test_depth_weighted_by_hand() -> None:
    # exits after blocks 4 and 6 of 12: (4*1 + 6*2 + 12*3) / 22
    value = losses.depth_weighted([torch.tensor(1.0), torch.tensor(2.0)], torch.tensor(3.0), (4, 6), 12)
    assert value.item() == pytest.approx((4 * 1 + 6 * 2 + 12 * 3) / 22)


def test_soft_target_loss_is_divided_by_batch_and_classes() -> None:
    student = torch.zeros(2, 2)
    teacher = torch.tensor([[0.0, 2 * math.log(3.0)]] * 2)  # (1/4, 3/4) at temperature 2
    divergence = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert losses.soft_target_loss(student, teacher).item() == pytest.approx(4 * 2 * divergence / (2 * 2), rel=1e-5)


def test_imitate_backbone_sums_tokens_and_averages_the_batch() -> None:
    features = torch.zeros(2, 3, 2)  # (1/2, 1/2) at every token
    teacher = torch.zeros(2, 3, 2)
    teacher[:, :, 1] = math.log(3.0)  # (1/4, 3/4)
    divergence = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert losses.imitate_backbone(features, teacher).item() == pytest.approx(3 * divergence, rel=1e-5)
    assert losses.imitate_backbone(teacher, teacher).item() == pytest.approx(0.0, abs=1e-6)


def test_imitate_gram_ignores_the_number_of_tokens() -> None:
    few, many = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[1.0, 2.0]] * 4])
    assert losses.imitate_gram(few, many).item() == pytest.approx(0.0)
    # Gram of (1, 2) is [[1, 2], [2, 4]], of (0, 0) is zero: mean of squares is (1 + 4 + 4 + 16) / 4
    assert losses.imitate_gram(few, torch.zeros(1, 3, 2)).item() == pytest.approx(25 / 4)


def test_imitate_features_is_the_mean_square() -> None:
    assert losses.imitate_features(torch.tensor([1.0, 3.0]), torch.zeros(2)).item() == pytest.approx(5.0)
