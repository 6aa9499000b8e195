"""Families of policies with one knob, from never exiting to the boldest, and what each member does to each sample.

Risk control needs a fixed order in which to test policies. A family is an array (members, exits) of thresholds, the
safest first: its first row never exits, and thresholds only fall from row to row, so each sample leaves earlier and
earlier. The family has to be fixed before the calibration samples are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maqee.errors import MaqeeError
from maqee.policy import NEVER, take_exits

Array = NDArray[np.float64]


def offset_family(thresholds: Sequence[float], steps: int = 100) -> Array:
    """The plan's thresholds plus one offset for all exits, from +1 to -1 in `steps` steps a unit, clipped to 0..1.

    The proportions the search found between the exits are kept. A threshold above 1 means that the plan has switched
    the exit off; it stays off in every member. Offset 0, the plan itself, is a member.

    Returns:
        (members, exits), the first row never exits; rows made equal by clipping are there once.
    """
    plan = np.asarray(thresholds, dtype=np.float64)
    if plan.ndim != 1 or plan.size == 0 or not np.isfinite(plan).all() or (plan < 0).any():
        raise MaqeeError(f"The plan's thresholds must be one number from 0 up for each exit, not {thresholds}.")
    if steps < 1:
        raise MaqeeError(f"The number of steps of a family must be at least 1, not {steps}.")
    offsets = np.arange(steps, -steps - 1, -1) / steps  # (members,); division makes 0 and 1 exact
    moved = np.where(plan[None, :] > 1, NEVER, np.clip(plan[None, :] + offsets[:, None], 0.0, 1.0))
    # Never exiting comes first: a threshold of 1 is not it, because a saturated softmax reaches 1.
    table = np.concatenate([np.full((1, plan.size), NEVER), moved])
    changed = (np.diff(table, axis=0) != 0).any(axis=1)
    return table[np.concatenate([[True], changed])]


def check_family(family: ArrayLike, exits: int) -> Array:
    """Complain unless the family is a table for `exits` exits that starts with never and only gets bolder."""
    table = np.asarray(family, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != exits or table.shape[0] == 0:
        raise MaqeeError(f"The family of policies must be (members, {exits} exits), not of shape {table.shape}.")
    if not np.isfinite(table).all() or (table < 0).any():
        raise MaqeeError("The thresholds of the family must be numbers from 0 up, without NaN or infinity.")
    if (table[0] <= 1).any():
        raise MaqeeError(f"The first member of the family must never exit: set its thresholds to {NEVER}.")
    if (np.diff(table, axis=0) > 0).any():
        raise MaqeeError("The thresholds of the family must not rise from row to row: order it from safe to bold.")
    return table


def as_floats(confidence: ArrayLike) -> NDArray[np.floating]:
    """Confidences in the precision they have: thresholds are rounded to it, as when the model really stops."""
    array = np.asarray(confidence)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)


def policy_gaps(confidence: NDArray[np.floating], losses: Array, family: Array) -> Array:
    """Loss at the exit taken minus loss at full depth: (n, exits), (n, exits + 1), (members, exits) to (n, members)."""
    taken = take_exits(confidence, family)
    return np.take_along_axis(losses, taken, axis=1) - losses[:, -1:]
