"""The best pairs of all for given risks and prices: a knapsack that takes one pair for each unit.

Costs are counted in small equal steps, rounded up, so that what is found keeps to the budget. For these costs it is the
optimum. How far that can be from the optimum for the costs as they are is known too: the Lagrangian bound tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maqee.errors import MaqeeError

Floats = NDArray[np.float64]
_STEPS = 1 << 14  # of the budget
_HALVINGS = 60
_ROUNDING = 1e-9  # of a budget: sums of the same costs in another order may differ by as much


@dataclass(frozen=True)
class Allocation:
    """One pair for each unit.

    Attributes:
        chosen: index of each unit's pair.
        risk: their sum of risks.
        cost: their sum of costs.
        gap: how much lower the risk of the best choice can be at most.
        price: risk that one more unit of cost is worth here.
    """

    chosen: tuple[int, ...]
    risk: float
    cost: float
    gap: float
    price: float


def allocate_pairs(risks: Sequence[Floats], costs: Sequence[Floats], budget: float) -> Allocation:
    """The least sum of risks with a sum of costs within the budget.

    Args:
        risks: of every unit, the risk of each of its pairs.
        costs: likewise.
        budget: the most the costs may add up to.
    """
    if [len(row) for row in risks] != [len(row) for row in costs]:
        raise MaqeeError("Every unit needs as many risks as costs.")
    least = sum(float(row.min()) for row in costs)
    if least > budget * (1 + _ROUNDING):
        raise MaqeeError(f"The budget of {budget:.4g} cannot be met: the least possible is {least:.4g}.")
    price, bound = _price(risks, costs, budget)
    # What the cheapest pairs cost is spent in any case; only what is above it needs counting.
    room = max(budget - least, 0.0)
    extra = [_count(row - row.min(), room) for row in costs]
    best, taken = np.zeros(_STEPS + 1), []  # best[s]: least risk with at most s steps
    for risk, steps in zip(risks, extra, strict=True):
        after, chosen = np.full(_STEPS + 1, np.inf), np.zeros(_STEPS + 1, dtype=np.int16)
        for index in np.argsort(steps, kind="stable"):
            count = int(steps[index])
            if count > _STEPS:
                continue
            trial = best[: _STEPS + 1 - count] + risk[index]
            lower = trial < after[count:]
            after[count:][lower] = trial[lower]
            chosen[count:][lower] = index
        best = after
        taken.append(chosen)
    left, chosen_pairs = _STEPS, []
    for chosen, steps in zip(reversed(taken), reversed(extra), strict=True):
        index = int(chosen[left])
        chosen_pairs.append(index)
        left -= int(steps[index])
    indices = tuple(reversed(chosen_pairs))
    total_risk, total_cost = (
        sum(float(row[index]) for row, index in zip(table, indices, strict=True)) for table in (risks, costs)
    )
    return Allocation(indices, total_risk, total_cost, max(total_risk - bound, 0.0), price)


def _count(costs: Floats, room: float) -> NDArray[np.int64]:
    """Costs in steps of the room there is, rounded up; what is a whole number of steps but for rounding stays one.

    What is more than all the room counts as one step too many.
    """
    fits = costs <= room * (1 + _ROUNDING)
    steps = np.where(fits, costs, 0.0) * (_STEPS / room if room > 0 else 0.0)
    return np.where(fits, np.minimum(np.ceil(steps - 1e-9), _STEPS), _STEPS + 1).astype(np.int64)


def _price(risks: Sequence[Floats], costs: Sequence[Floats], budget: float) -> tuple[float, float]:
    """The price of cost at which the budget is just kept, and the Lagrangian lower bound of the risk there."""

    def at(price: float) -> tuple[float, float]:
        spent = value = 0.0
        for risk, cost in zip(risks, costs, strict=True):
            score = risk + price * cost
            index = int(np.lexsort((cost, score))[0])
            spent, value = spent + float(cost[index]), value + float(score[index])
        return spent, value - price * budget

    high = 1.0 / max(budget, 1e-300)
    while at(high)[0] > budget * (1 + _ROUNDING) and high < 1e200:  # an infinite risk has no price
        high *= 4.0
    low, bound = 0.0, at(0.0)[1]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        spent, value = at(middle)
        bound = max(bound, value)
        low, high = (middle, high) if spent > budget else (low, middle)
    return high, max(bound, at(high)[1])
