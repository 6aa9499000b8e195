"""What a policy does, from the trace alone: who leaves where, how good that is and what it costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from maqee.apq.cost import closing_saves, part_bops, utilization
from maqee.apq.records import Figures, Found, Position
from maqee.apq.trace import Trace
from maqee.policy import take_exits

Floats = NDArray[np.float64]
Mean = TypeVar("Mean", float, None)


def exit_mass(taken: NDArray[np.intp], exits: int) -> Floats:
    """Share of the samples that leaves at each exit and at full depth: (E + 1,)."""
    return np.bincount(taken, minlength=exits + 1) / taken.size


def exit_costs(trace: Trace) -> Floats:
    """What a sample costs that leaves at each exit and at full depth: (E + 1,), BOPs or measured milliseconds.

    All exits are open here; where a policy closes some, `closing_saves` of the `head_costs` come off. Expected cost is
    linear in the exit mass, so the cost of a policy is the mean of these over its samples.
    """
    return exit_bops(trace) if trace.exit_ms is None else np.array(trace.exit_ms)


def head_costs(trace: Trace) -> Floats:
    """What the head of each exit adds to the cost of a sample that reaches it: (E,), 0 where it was not timed."""
    if trace.exit_ms is None:
        return head_bops(trace)
    return np.zeros(trace.exits) if trace.head_ms is None else np.array(trace.head_ms)


def policy_costs(trace: Trace, thresholds: Sequence[float]) -> Floats:
    """The same under a policy, which may close exits: (E + 1,)."""
    return exit_costs(trace) - closing_saves(head_costs(trace), thresholds)


def lone_exit_costs(trace: Trace) -> Floats:
    """What a sample costs that leaves at each exit or at full depth, all exits before it being closed: (E + 1,)."""
    return exit_costs(trace) - np.append(0.0, np.cumsum(head_costs(trace)))


def exit_bops(trace: Trace) -> Floats:
    """BOPs of a sample that leaves at each exit and at full depth, all exits being open: (E + 1,)."""
    costs = part_bops(trace.parts, trace.bits)
    blocks = np.array([part.block for part in trace.parts])
    return np.array([costs[blocks <= end].sum() for end in trace.exit_blocks])


def head_bops(trace: Trace) -> Floats:
    """BOPs of the head of each exit: (E,)."""
    costs = part_bops(trace.parts, trace.bits)
    blocks = np.array([part.block if part.kind == "head" else 0 for part in trace.parts])
    return np.array([costs[blocks == end].sum() for end in trace.exit_blocks[:-1]])


def policy_bops(trace: Trace, thresholds: Sequence[float]) -> Floats:
    """The same in BOPs, whatever the cost is."""
    return exit_bops(trace) - closing_saves(head_bops(trace), thresholds)


def scores_at(trace: Trace, taken: NDArray[np.intp]) -> Floats:
    """The task's score of every sample at the exit that it takes: (samples,)."""
    return trace.correct[np.arange(trace.samples), taken].astype(np.float64)


def policy_scores(trace: Trace, thresholds: Sequence[float]) -> Floats:
    """The same under a policy."""
    return scores_at(trace, take_exits(trace.confidence[:, :-1], thresholds))


def policy_figures(trace: Trace, thresholds: Sequence[float]) -> Figures:
    """Metric, loss and expected cost of a policy on the trace's samples."""
    taken = take_exits(trace.confidence[:, :-1], thresholds)
    rows = np.arange(trace.samples)
    mass = exit_mass(taken, trace.exits)
    average = sum(trace.bits.mean_weights) / trace.depth
    return Figures(
        metric=float(scores_at(trace, taken).sum() / trace.samples),
        loss=float(trace.loss[rows, taken].astype(np.float64).sum() / trace.samples),
        bops=float((mass * policy_bops(trace, thresholds)).sum()),
        mean_exit=float((mass * np.array(trace.exit_blocks)).sum()),
        exit_mass=tuple(float(share) for share in mass),
        average_bits=average,
        weighted_bits=_mean_width(trace, ("linear",), 0, average),
        activation_bits=_mean_width(trace, ("linear", "attention"), 1, None),
        ms=None if trace.exit_ms is None else float((mass * policy_costs(trace, thresholds)).sum()),
    )


def _mean_width(trace: Trace, kinds: Collection[str], which: Literal[0, 1], otherwise: Mean) -> float | Mean:
    """Weight (0) or activation (1) bits, the mean over multiply-accumulates of some kinds of parts."""
    parts = [part for part in trace.parts if part.kind in kinds]
    macs = sum(part.macs for part in parts)
    return sum(part.macs * trace.bits.of(part)[which] for part in parts) / macs if macs else otherwise


def block_reach(trace: Trace, thresholds: Sequence[float]) -> Floats:
    """u_l: share of the samples that reaches each block under the quantized policy, (L,)."""
    mass = exit_mass(take_exits(trace.confidence[:, :-1], thresholds), trace.exits)
    return utilization([float(share) for share in mass], trace.exit_blocks, trace.depth)


def position_of(trace: Trace, found: Found, weights: str = "") -> Position:
    """Thresholds that were found for a pass, with what they do there."""
    figures = policy_figures(trace, found.thresholds)
    return Position(trace.bits, found.thresholds, found.excess, found.objective, figures, weights)
