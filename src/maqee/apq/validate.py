"""What to expect on samples that did not choose the policy.

Thresholds are the best of many for the samples at hand, and so look better on them than they are, the more so the fewer
samples there are. Choosing on a part of them and looking at the rest tells how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from maqee.apq.figures import Floats, policy_bops, scores_at
from maqee.apq.records import Expected, FoldOutcome, Found
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError
from maqee.policy import take_exits

FOLDS = 5
STANDARD_ERRORS = 2.0  # further from zero than that a difference is taken for real
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
    metric = scores_at(held_out, taken)
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


def falls_beyond_chance(before: Floats, after: Floats) -> bool:
    """Whether the scores of the same samples are worse by more than two standard errors of the mean difference.

    A plan is the best of many on its samples, and so looks better on them than it is; what is compared with it, and was
    not chosen on them, does not. Half a point less on 2,000 images is no reason to believe that it is worse.
    """
    change = after - before
    error = _standard_error(float(change.mean()), float((change**2).sum()), len(change))
    return bool(change.mean() < -STANDARD_ERRORS * error)


def _standard_error(mean: float, square_sum: float, samples: int) -> float:
    """Of a mean of independent samples, from the sum of their squares."""
    return math.sqrt(max(square_sum - samples * mean**2, 0.0) / max(samples - 1, 1) / samples)
