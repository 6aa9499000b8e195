"""When to stop: one confidence threshold for each exit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from maqee.errors import MaqeeError

NEVER = 2.0  # no confidence reaches it; a finite number so that it can be written as JSON


@dataclass(frozen=True)
class Policy:
    """A sample leaves at the first exit whose confidence is at least the exit's threshold; else at full depth.

    Example:
        >>> Policy((0.9, 0.8)).thresholds
        (0.9, 0.8)
    """

    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        if any(math.isnan(threshold) or threshold < 0 for threshold in self.thresholds):
            raise MaqeeError(f"Thresholds must be numbers from 0 (always exit) up, not {self.thresholds}.")

    @classmethod
    def same(cls, threshold: float, exits: int) -> Policy:
        """One threshold for every exit."""
        return cls((threshold,) * exits)

    @classmethod
    def never(cls, exits: int) -> Policy:
        """Full depth for every sample."""
        return cls((NEVER,) * exits)

    def check(self, exits: int) -> None:
        """Complain if the policy was made for another number of exits."""
        if len(self.thresholds) != exits:
            raise MaqeeError(
                f"The policy has {len(self.thresholds)} thresholds, the model {exits} exits: give {exits}."
            )

    def choose(self, confidences: Tensor) -> Tensor:
        """The exit each sample takes, by array work: (exits, samples) confidences to (samples,) indices."""
        self.check(confidences.shape[0])
        limits = torch.tensor(self.thresholds, dtype=confidences.dtype, device=confidences.device)
        leaves = confidences >= limits[:, None]
        last = torch.ones_like(leaves[:1]) if leaves.shape[0] else leaves.new_ones(1, confidences.shape[1])
        return torch.cat([leaves, last]).int().argmax(dim=0)
