"""LGViT's training losses as plain functions of tensors (algorithm facts: Xu et al. 2023 and their code)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

HARD_SHARE, SOFT_SHARE = 0.7, 0.3  # cross-entropy and distillation in stage two
FEATURE_WEIGHT = 0.01  # of each feature loss in stage two
TEMPERATURE = 2.0


def depth_weighted(exit_losses: Sequence[Tensor], final_loss: Tensor, positions: Sequence[int], depth: int) -> Tensor:
    """Stage one, odd steps: (sum_e pos_e L_e + depth L_final) / (sum_e pos_e + depth)."""
    total = depth * final_loss + sum(position * loss for position, loss in zip(positions, exit_losses, strict=True))
    return total / (depth + sum(positions))


def soft_target_loss(student: Tensor, teacher: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """T^2 KL(teacher || student), summed and divided by batch x classes, as LGViT scales it."""
    log_student = F.log_softmax(student.float() / temperature, dim=-1)
    log_teacher = F.log_softmax(teacher.float() / temperature, dim=-1)
    divergence = F.kl_div(log_student, log_teacher, reduction="sum", log_target=True)
    return divergence * temperature**2 / student.numel()


def imitate_backbone(features: Tensor, teacher: Tensor) -> Tensor:
    """Heterogeneous distillation: KL over channels from the last block's patches to a head's features.

    Args:
        features: (batch, n, dim) of the head.
        teacher: (batch, n, dim), the same patches after the last block.
    """
    log_student = F.log_softmax(features.float(), dim=-1)
    log_teacher = F.log_softmax(teacher.float(), dim=-1)
    return F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)


def imitate_features(features: Tensor, teacher: Tensor) -> Tensor:
    """Homogeneous distillation between local heads: mean squared difference."""
    return F.mse_loss(features.float(), teacher.float())


def imitate_gram(features: Tensor, teacher: Tensor) -> Tensor:
    """Homogeneous distillation between global heads: mean squared difference of channel Gram matrices.

    Heads of different stride have different numbers of patches, so the matrices are divided by that number; LGViT
    compares the sums, which cannot agree.
    """
    return F.mse_loss(_gram(features), _gram(teacher))


def _gram(features: Tensor) -> Tensor:
    """(batch, n, dim) to (batch, dim, dim)."""
    with torch.autocast(features.device.type, enabled=False):
        x = features.float()
        return x.transpose(1, 2) @ x / x.shape[1]
