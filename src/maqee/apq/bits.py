"""Moving bits between blocks: who would gain most by one more, and who would lose least by one less.

The priority score (the paper's Psi) weighs the risk a bit takes away, as often as the block is executed, against what
it costs::

    Psi_plus  = u_l (R_l(b) - R_l(b + 1)) - lambda (BOPs(b + 1 at l) - BOPs(b)) / BOPs(b)
    Psi_minus = u_l (R_l(b - 1) - R_l(b)) - lambda (BOPs(b) - BOPs(b - 1 at l)) / BOPs(b)

The paper has only the first, and takes the bit from the block that would gain least. A bit less hurts about four
times as much as a bit more helps (noise power is four times that of the next width), and a block at its most bits has
no first score at all; so the donor is chosen by the second, and a swap must gain more than it loses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maqee.apq.figures import Floats, block_reach, policy_figures
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales
from maqee.apq.risks import representation_risk
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError

BlockBits = tuple[int, ...]  # weight bits of every block


@dataclass(frozen=True, eq=False)
class BlockRisks:
    """Risks of each block at several widths, the other blocks being as they are; NaN where not measured.

    Attributes:
        lowest: weight bits of the first column; each further column has one more.
        drift: (L, widths) mean QID term of the block's output, or its sum over the path behind it.
        noise: (L, widths) mean inverse SQNR, likewise.
    """

    lowest: int
    drift: Floats
    noise: Floats

    def __post_init__(self) -> None:
        shapes = {np.shape(array) for array in (self.drift, self.noise)}
        if len(shapes) != 1 or self.drift.ndim != 2:
            raise MaqeeError(f"Block risks must be arrays of blocks x widths with one shape, not {sorted(shapes)}.")

    def total(self, scales: Scales, options: SearchOptions) -> Floats:
        """What of R the block's own output shows: (L, widths).

        BSR looks at the full-precision model and knows no bits; PGR would need the model to be run on to the next exit.
        """
        return representation_risk(self.drift, self.noise, scales, options)

    def at(self, bits: BlockBits, change: int, scales: Scales, options: SearchOptions) -> Floats:
        """R of each block at its own width plus `change`: (L,); NaN where not measured."""
        total = self.total(scales, options)
        column = np.array(bits) + change - self.lowest
        inside = (column >= 0) & (column < total.shape[1])
        found = total[np.arange(len(bits)), np.clip(column, 0, total.shape[1] - 1)]
        return np.where(inside, found, np.nan)


@dataclass(frozen=True, eq=False)
class Scores:
    """Both halves of Psi, kept apart so that a log can show them: (L,) each, NaN where there is no such width."""

    risk_up: Floats  # u_l x risk that one more bit takes away
    cost_up: Floats  # share of the whole cost that it adds
    risk_down: Floats  # u_l x risk that one bit less adds
    cost_down: Floats  # share of the whole cost that it saves
    price: float  # lambda_inner

    @property
    def plus(self) -> Floats:
        """Psi_plus: worth of one more bit."""
        return self.risk_up - self.price * self.cost_up

    @property
    def minus(self) -> Floats:
        """Psi_minus: worth of the bit that would be taken away."""
        return self.risk_down - self.price * self.cost_down


class Swap(NamedTuple):
    """One bit from one block to another (both counted from 0)."""

    donor: int
    receiver: int
    worth: float

    def apply(self, bits: BlockBits) -> BlockBits:
        """The allocation after the swap."""
        change = {self.donor: -1, self.receiver: 1}
        return tuple(width + change.get(block, 0) for block, width in enumerate(bits))


def bit_costs(trace: Trace) -> Floats:
    """BOPs that one weight bit of each block costs when the block is executed: (L,)."""
    costs = np.zeros(trace.depth)
    for part in trace.parts:
        if part.kind == "linear":
            costs[part.block - 1] += part.macs * trace.bits.of(part)[1]
    return costs


def score_bits(
    trace: Trace, thresholds: tuple[float, ...], risks: BlockRisks, scales: Scales, options: SearchOptions
) -> Scores:
    """Psi of every block, up and down, at the trace's bits under the policy."""
    bits, reach = trace.bits.block_weights, block_reach(trace, thresholds)
    share = reach * bit_costs(trace) / policy_figures(trace, thresholds).bops
    lower, now, upper = (risks.at(bits, change, scales, options) for change in (-1, 0, 1))
    can_rise, can_fall = np.array(bits) < options.bit_max, np.array(bits) > options.bit_min
    return Scores(
        risk_up=np.where(can_rise, reach * (now - upper), np.nan),
        cost_up=share,
        risk_down=np.where(can_fall, reach * (lower - now), np.nan),
        cost_down=share,
        price=options.lambda_inner,
    )


def candidate_swaps(bits: BlockBits, scores: Scores, options: SearchOptions, seen: Collection[BlockBits]) -> list[Swap]:
    """Swaps that promise to gain, the best first, without those that lead back to an allocation already seen.

    The rule as printed gives at most one swap, whatever it promises.
    """
    if options.swap == "literal":
        swaps = _literal(scores)
    else:
        worth = scores.plus[None, :] - scores.minus[:, None]  # (donor, receiver)
        np.fill_diagonal(worth, np.nan)
        pairs = np.argwhere(worth > 0)
        swaps = [Swap(int(donor), int(receiver), float(worth[donor, receiver])) for donor, receiver in pairs]
        swaps.sort(key=lambda swap: (-swap.worth, swap.donor, swap.receiver))
    return [swap for swap in swaps if swap.apply(bits) not in seen]


def raise_bits(bits: BlockBits, scores: Scores, count: int) -> BlockBits:
    """One more bit for the `count` blocks where it is worth most: from a uniform width towards the next."""
    worth = np.where(np.isnan(scores.plus), -np.inf, scores.plus)
    chosen: NDArray[np.intp] = np.argsort(-worth, kind="stable")[:count]
    return tuple(width + int(block in chosen) for block, width in enumerate(bits))


def _literal(scores: Scores) -> list[Swap]:
    """Algorithm 1: the donor has the least Psi_plus (Psi_minus at the most bits), the receiver the greatest."""
    giving = np.where(np.isnan(scores.risk_down), np.inf, np.where(np.isnan(scores.plus), scores.minus, scores.plus))
    taking = np.where(np.isnan(scores.plus), -np.inf, scores.plus)
    donor, receiver = int(giving.argmin()), int(taking.argmax())
    if donor == receiver or np.isinf(giving[donor]) or np.isinf(taking[receiver]):
        return []
    return [Swap(donor, receiver, float(taking[receiver] - giving[donor]))]
