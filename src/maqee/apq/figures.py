"""What a policy does, from the trace alone: who leaves where, how good that is and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maqee.apq.cost import part_bops, utilization
from maqee.apq.records import Figures
from maqee.apq.trace import Trace
from maqee.policy import take_exits

Floats = NDArray[np.float64]


def exit_mass(taken: NDArray[np.intp], exits: int) -> Floats:
    """Share of the samples that leaves at each exit and at full depth: (E + 1,)."""
    return np.bincount(taken, minlength=exits + 1) / taken.size


def exit_costs(trace: Trace) -> Floats:
    """BOPs of a sample that leaves at each exit and at full depth: (E + 1,).

    Expected cost is linear in the exit mass, so the cost of a policy is the mean of these over its samples.
    """
    costs = part_bops(trace.parts, trace.bits)
    blocks = np.array([part.block for part in trace.parts])
    return np.array([costs[blocks <= end].sum() for end in trace.exit_blocks])


def policy_figures(trace: Trace, thresholds: Sequence[float]) -> Figures:
    """Metric, loss and expected cost of a policy on the trace's samples."""
    taken = take_exits(trace.confidence[:, :-1], thresholds)
    rows = np.arange(trace.samples)
    mass = exit_mass(taken, trace.exits)
    linear = [part for part in trace.parts if part.kind == "linear"]
    macs = sum(part.macs for part in linear)
    weighted = sum(part.macs * trace.bits.weights[part.block - 1] for part in linear)
    average = sum(trace.bits.weights) / trace.depth
    return Figures(
        metric=float(trace.correct[rows, taken].astype(np.float64).sum() / trace.samples),
        loss=float(trace.loss[rows, taken].astype(np.float64).sum() / trace.samples),
        bops=float((mass * exit_costs(trace)).sum()),
        mean_exit=float((mass * np.array(trace.exit_blocks)).sum()),
        exit_mass=tuple(float(share) for share in mass),
        average_bits=average,
        weighted_bits=weighted / macs if macs else average,
    )


def block_reach(trace: Trace, thresholds: Sequence[float]) -> Floats:
    """u_l: share of the samples that reaches each block under the quantized policy, (L,)."""
    mass = exit_mass(take_exits(trace.confidence[:, :-1], thresholds), trace.exits)
    return utilization([float(share) for share in mass], trace.exit_blocks, trace.depth)
