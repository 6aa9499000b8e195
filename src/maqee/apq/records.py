"""What a search leaves behind, as plain values: a plan is read without any of the code that searched for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from maqee.apq._stored import STRICT
from maqee.widths import BitSettings


@dataclass(frozen=True)
class Figures:
    """A policy in numbers, measured on calibration samples with simulated quantization.

    Attributes:
        metric: mean of the task metric, 0..1.
        loss: mean loss.
        bops: expected bit operations of one sample.
        mean_exit: mean block after which samples leave.
        exit_mass: share of the samples that leaves at each exit and at full depth.
        average_bits: plain mean of the blocks' weight bits.
        weighted_bits: mean over the multiply-accumulates of linear layers; differs where layers or blocks differ.
        activation_bits: mean of the activation bits over the multiply-accumulates of blocks; None where it was not
            written down.
        ms: expected milliseconds of one sample, where measured time is the cost.
    """

    __pydantic_config__ = STRICT

    metric: float
    loss: float
    bops: float
    mean_exit: float
    exit_mass: tuple[float, ...]
    average_bits: float
    weighted_bits: float
    activation_bits: float | None = None
    ms: float | None = None

    @property
    def cost(self) -> float:
        """What a search makes least: measured milliseconds where there are any, bit operations else."""
        return self.bops if self.ms is None else self.ms

    @property
    def cost_words(self) -> str:
        """The cost with its unit."""
        return f"{self.bops:.3e} BOPs" if self.ms is None else f"{self.ms:.3g} ms ({self.bops:.3e} BOPs)"


@dataclass(frozen=True)
class Expected:
    """What a way of choosing thresholds achieves on samples that it has not seen.

    Attributes:
        metric: mean of the task metric, 0..1.
        bops: expected bit operations of one sample.
        mean_exit: mean block after which samples leave.
        folds: parts that the samples were split into.
        metric_error: standard error of the metric, from the spread over samples; None if it was not measured.
        bops_error: likewise of the bit operations.
    """

    __pydantic_config__ = STRICT

    metric: float
    bops: float
    mean_exit: float
    folds: int
    metric_error: float | None = None
    bops_error: float | None = None


@dataclass(frozen=True)
class Scales:
    """What the terms are divided by before they are added: measured once, so that differences keep their meaning.

    BSR is a share already and is divided only on demand. `cost` is in BOPs. The margins of BSR at every exit, `tau`,
    are fixed too.
    """

    __pydantic_config__ = STRICT

    pgr: float = 1.0
    qid: float = 1.0
    sqnr: float = 1.0
    cost: float = 1.0
    tau: tuple[float, ...] = ()
    bsr: float = 1.0


class Found(NamedTuple):
    """Thresholds, and what they achieve."""

    thresholds: tuple[float, ...]
    excess: float
    objective: float


def better(one: Found, other: Found) -> bool:
    """Whether a policy is better: nearer to its limit, or as near and with a lower objective (rounding aside)."""
    if one.excess != other.excess:
        return one.excess < other.excess
    return one.objective < other.objective - 1e-12 * max(1.0, abs(other.objective))


@dataclass(frozen=True)
class FoldOutcome:
    """What was chosen on all samples but one part of them, and what it does on that part.

    Sums, not means, so that parts can be added up.

    Attributes:
        thresholds: chosen on the other parts.
        excess: how far the limit is missed there.
        objective: what is achieved there.
        samples: of the part that did not choose.
        metric_sum: their task metric, added up.
        metric_square_sum: its squares.
        bops_sum: their bit operations.
        bops_square_sum: the squares of these.
        exit_block_sum: the blocks after which they leave.
    """

    __pydantic_config__ = STRICT

    thresholds: tuple[float, ...]
    excess: float
    objective: float
    samples: int
    metric_sum: float
    metric_square_sum: float
    bops_sum: float
    bops_square_sum: float
    exit_block_sum: float

    def beats(self, other: FoldOutcome) -> bool:
        """Whether this is the better choice by what the samples that chose can tell."""
        mine, theirs = (Found(outcome.thresholds, outcome.excess, outcome.objective) for outcome in (self, other))
        return better(mine, theirs)


@dataclass(frozen=True)
class Position:
    """An allocation with its policy, and what they achieve.

    Attributes:
        bits: widths of everything.
        thresholds: of every exit.
        excess: how far the budget's limit is missed, in the limit's own unit; 0 is met.
        objective: J, or the expected cost where the budget asks for a metric.
        figures: the policy in numbers.
        weights: name of the snapshot of the weights; empty where nothing was trained.
    """

    __pydantic_config__ = STRICT

    bits: BitSettings
    thresholds: tuple[float, ...]
    excess: float
    objective: float
    figures: Figures
    weights: str = ""

    def beats(self, other: Position) -> bool:
        """Whether this is better: nearer to the limit, or as near with a lower objective."""
        mine, theirs = (Found(place.thresholds, place.excess, place.objective) for place in (self, other))
        return better(mine, theirs)


@dataclass(frozen=True)
class Step:
    """One entry of the history.

    Attributes:
        kind: "start", "swap" of a bit between blocks, "exact" (an allocation from the knapsack), "move" (of single
            steps), "last" (the closing threshold search) or "recovery" (training at the end, and thresholds for what
            came out).
        position: what was tried.
        accepted: whether the search went on from there.
        best_excess: of the best position so far, this one included.
        best_objective: likewise; with best_excess it never rises.
        donor: block (from 1) that gave a bit.
        receiver: block (from 1) that got it.
        risk_term: u_l x risk that the swap promised to take away.
        cost_term: share of the whole cost that it adds.
        spent: what the knapsack could spend, as a share of what the first widths cost.
        gap: how far its sum of risks can be from the best at most.
        move: what was changed, in words.
    """

    __pydantic_config__ = STRICT

    kind: Literal["start", "swap", "exact", "move", "last", "recovery"]
    position: Position
    accepted: bool
    best_excess: float
    best_objective: float
    donor: int | None = None
    receiver: int | None = None
    risk_term: float | None = None
    cost_term: float | None = None
    spent: float | None = None
    gap: float | None = None
    move: str | None = None
