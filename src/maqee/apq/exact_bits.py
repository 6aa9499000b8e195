"""The best bits of all, for given risks: a knapsack that takes one width for each block.

Costs may be bits or BOPs. Partial allocations that another one beats in both risk and cost can never be part of the
best, so only the others are carried from block to block: exact, and short in practice.
"""

from __future__ import annotations

import numpy as np

from maqee.apq.bits import BlockBits, BlockRisks, bit_costs
from maqee.apq.cost import bops, closed_blocks
from maqee.apq.figures import Floats, block_reach
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError

_MOST_STATES = 4_000_000


def allocate(risk: Floats, cost: Floats, budget: float) -> tuple[int, ...]:
    """One column for each row, so that the sum of risks is least and the sum of costs within the budget.

    Args:
        risk: (L, choices); NaN is no choice.
        cost: (L, choices).
        budget: the most the costs may add up to.
    """
    if risk.shape != cost.shape:
        raise MaqeeError(f"Risks {risk.shape} and costs {cost.shape} must have the same shape.")
    if np.isnan(risk).all(axis=1).any():
        raise MaqeeError("Every block needs the risk of at least one width.")
    least = np.where(np.isnan(risk), np.inf, cost).min(axis=1)
    allowance = budget + 1e-9 * max(1.0, abs(budget))
    if least.sum() > allowance:
        raise MaqeeError(f"The budget of {budget:g} cannot be met: the least possible is {least.sum():g}.")
    behind = np.append(np.cumsum(least[::-1])[::-1], 0.0)[1:]  # what the blocks still to come cost at least
    spent, risked = np.zeros(1), np.zeros(1)
    steps: list[tuple[Floats, Floats]] = []  # for each state the state before it, and the column taken
    for block in range(risk.shape[0]):
        columns = np.flatnonzero(~np.isnan(risk[block]))
        new_spent = (spent[:, None] + cost[block, columns]).ravel()
        new_risked = (risked[:, None] + risk[block, columns]).ravel()
        order = np.lexsort((new_risked, new_spent))
        order = order[new_spent[order] + behind[block] <= allowance]
        lowest = np.minimum.accumulate(new_risked[order])
        kept = order[np.append(True, lowest[1:] < lowest[:-1])]
        if kept.size > _MOST_STATES:
            raise MaqeeError("The exact allocation has too many undominated choices: round the costs, or use swaps.")
        steps.append((kept // columns.size, columns[kept % columns.size]))
        spent, risked = new_spent[kept], new_risked[kept]
    state, chosen = int(risked.argmin()), []
    for before, column in reversed(steps):
        chosen.append(int(column[state]))
        state = int(before[state])
    return tuple(reversed(chosen))


def allocate_bits(
    trace: Trace,
    thresholds: tuple[float, ...],
    risks: BlockRisks,
    scales: Scales,
    options: SearchOptions,
    *,
    total_bits: int | None = None,
    max_bops: float | None = None,
) -> BlockBits:
    """Bits with the least sum of u_l R_l + lambda_inner x share of cost, within total bits or expected BOPs.

    It trusts the risks, which were measured with the other blocks as they are; bits far from those need a new look.
    """
    if (total_bits is None) == (max_bops is None):
        raise MaqeeError("Give either a total of bits or a maximum of BOPs for the exact allocation.")
    reach, widths = block_reach(trace, thresholds), np.arange(risks.drift.shape[1]) + risks.lowest
    expected = (reach * bit_costs(trace))[:, None] * widths  # BOPs of each block's weights
    worth = reach[:, None] * risks.total(scales, options)
    fixed = _other_bops(trace, thresholds, reach)
    now = fixed + float((reach * bit_costs(trace) * np.array(trace.bits.block_weights)).sum())
    worth = worth + options.lambda_inner * expected / now
    outside = (widths < options.bit_min) | (widths > options.bit_max)
    worth[:, outside] = np.nan
    if total_bits is not None:
        cost, budget = np.tile(widths.astype(np.float64), (trace.depth, 1)), float(total_bits)
    else:
        assert max_bops is not None
        cost, budget = expected, max_bops - fixed
        least = fixed + float(expected[:, ~outside][:, 0].sum())
        if least > max_bops * (1 + 1e-9):
            raise MaqeeError(f"{max_bops:.4g} BOPs cannot be met under this policy: the fewest are {least:.4g}.")
    return tuple(int(widths[column]) for column in allocate(worth, cost, budget))


def _other_bops(trace: Trace, thresholds: tuple[float, ...], reach: Floats) -> float:
    """Expected BOPs of everything that has no block bits."""
    others = [part for part in trace.parts if part.kind != "linear"]
    return bops(others, trace.bits, reach, closed_blocks(thresholds, trace.exit_blocks))
