"""When to stop: one confidence threshold for each exit. Arrays only, so that a search needs no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maqee.errors import MaqeeError

NEVER = 2.0  # closes an exit; a finite number so that it can be written as JSON


def closed_exits(thresholds: ArrayLike) -> NDArray[np.bool_]:
    """Which exits are closed: nobody can leave there, because a confidence is at most 1 and the threshold is above.

    A threshold that nobody happens to reach is not closed. A closed exit is as good as not there: its head is neither
    run nor charged.
    """
    return np.asarray(thresholds, dtype=np.float64) > 1


def take_exits(confidence: NDArray[np.floating], thresholds: ArrayLike) -> NDArray[np.intp]:
    """The exit every sample takes: the first whose confidence is at least its threshold, E where there is none.

    Thresholds are rounded to the confidences' own precision, as `EarlyExitModel.run` does when it really stops, so that
    both agree on every sample. Closed exits let nobody go, not even where rounding has lifted a confidence above 1.

    Args:
        confidence: (n, E).
        thresholds: (..., E), one policy or a table of them.

    Returns:
        (n, ...) indices; E is full depth.
    """
    limits = np.where(closed_exits(thresholds), np.inf, thresholds).astype(confidence.dtype)
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

    A threshold above 1 closes its exit (`closed_exits`).

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

    @property
    def open(self) -> tuple[int, ...]:
        """The exits that are not closed, counted from 0."""
        return tuple(np.flatnonzero(~closed_exits(self.thresholds)).tolist())

    @property
    def closed(self) -> tuple[int, ...]:
        """The exits that are."""
        return tuple(np.flatnonzero(closed_exits(self.thresholds)).tolist())

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
