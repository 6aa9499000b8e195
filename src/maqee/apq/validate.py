"""What to expect on samples that did not choose the policy.

Thresholds are the best of many for the samples at hand, and so look better on them than they are, the more so the fewer
samples there are. Choosing on a part of them and looking at the rest tells how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from maqee.apq.figures import policy_bops
from maqee.apq.records import Expected, FoldOutcome, Found
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError
from maqee.policy import take_exits

FOLDS = 5
Choose = Callable[[Trace], Found]  # samples to thresholds, and what these achieve on them


class Split(NamedTuple):
    """Samples that choose, and those that look at what was chosen."""

    choosing: Trace
    held_out: Trace


def split_samples(trace: Trace, folds: int = FOLDS) -> list[Split]:
    """Every part of the samples beside all the others; none at all if there are fewer than two samples a part.

    Sample i is in part i mod `folds`: calibration images come in random order.
    """
    if folds < 2:
        raise MaqeeError(f"folds: {folds} must be at least 2.")
    if trace.samples < 2 * folds:
        return []
    part = np.arange(trace.samples) % folds
    return [Split(trace.select(part != one), trace.select(part == one)) for one in range(folds)]


def fold_outcomes(trace: Trace, choose: Choose, folds: int = FOLDS) -> tuple[FoldOutcome, ...]:
    """Choose on all parts but one and measure on that one, for each in turn; empty if there are too few samples."""
    return tuple(outcome_on(split.held_out, choose(split.choosing)) for split in split_samples(trace, folds))


def outcome_on(held_out: Trace, found: Found) -> FoldOutcome:
    """What a choice does on samples that had no part in it."""
    taken = take_exits(held_out.confidence[:, :-1], found.thresholds)
    metric = held_out.correct[np.arange(held_out.samples), taken].astype(np.float64)
    bops = policy_bops(held_out, found.thresholds)[taken]
    return FoldOutcome(
        thresholds=found.thresholds,
        excess=found.excess,
        objective=found.objective,
        samples=held_out.samples,
        metric_sum=float(metric.sum()),
        metric_square_sum=float((metric**2).sum()),
        bops_sum=float(bops.sum()),
        bops_square_sum=float((bops**2).sum()),
        exit_block_sum=float(np.array(held_out.exit_blocks)[taken].sum()),
    )


def expected_from(outcomes: Sequence[FoldOutcome]) -> Expected | None:
    """Means over all samples, with their standard errors; None if there are no outcomes."""
    if not outcomes:
        return None
    samples = sum(outcome.samples for outcome in outcomes)

    def add(name: str) -> float:
        return math.fsum(getattr(outcome, name) for outcome in outcomes)

    metric, bops = add("metric_sum") / samples, add("bops_sum") / samples
    return Expected(
        metric=metric,
        bops=bops,
        mean_exit=add("exit_block_sum") / samples,
        folds=len(outcomes),
        metric_error=_standard_error(metric, add("metric_square_sum"), samples),
        bops_error=_standard_error(bops, add("bops_square_sum"), samples),
    )


def cross_validate(trace: Trace, choose: Choose, folds: int = FOLDS) -> Expected | None:
    """What a way of choosing achieves on samples that did not choose; None if there are too few of them."""
    return expected_from(fold_outcomes(trace, choose, folds))


def _standard_error(mean: float, square_sum: float, samples: int) -> float:
    """Of a mean of independent samples, from the sum of their squares."""
    return math.sqrt(max(square_sum - samples * mean**2, 0.0) / max(samples - 1, 1) / samples)
