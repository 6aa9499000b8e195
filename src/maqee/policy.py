"""When to stop: one confidence threshold for each exit. Arrays only, so that a search needs no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maqee.errors import MaqeeError

NEVER = 2.0  # no confidence reaches it; a finite number so that it can be written as JSON


def take_exits(confidence: NDArray[np.floating], thresholds: ArrayLike) -> NDArray[np.intp]:
    """The exit every sample takes: the first whose confidence is at least its threshold, E where there is none.

    Thresholds are rounded to the confidences' own precision, as `EarlyExitModel.run` does when it really stops, so that
    both agree on every sample.

    Args:
        confidence: (n, E).
        thresholds: (..., E), one policy or a table of them.

    Returns:
        (n, ...) indices; E is full depth.
    """
    limits = np.asarray(thresholds, dtype=confidence.dtype)
    n, exits = confidence.shape
    if limits.ndim == 0 or limits.shape[-1] != exits:
        given = limits.shape[-1] if limits.ndim else 0
        raise MaqeeError(f"The policy has {given} thresholds for {exits} exits: give {exits}.")
    taken = np.full((n, *limits.shape[:-1]), exits, dtype=np.intp)
    for index in reversed(range(exits)):
        column = confidence[:, index].reshape(n, *(1,) * (limits.ndim - 1))
        taken[column >= limits[None, ..., index]] = index
    return taken


@dataclass(frozen=True)
class Policy:
    """A sample leaves at the first exit whose confidence is at least the exit's threshold; else at full depth.

    Example:
        >>> Policy((0.9, 0.8)).thresholds
        (0.9, 0.8)
    """

    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", tuple(float(threshold) for threshold in self.thresholds))
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

    def choose(self, confidence: NDArray[np.floating] | Sequence[Sequence[float]]) -> NDArray[np.intp]:
        """The exit each sample takes: (samples, exits) confidences to (samples,) indices."""
        array = np.asarray(confidence)
        self.check(array.shape[1])
        return take_exits(array, self.thresholds)
