"""What to expect on samples that did not choose the policy.

Thresholds are the best of many for the samples at hand, and so look better on them than they are, the more so the fewer
samples there are. Choosing on a part of them and looking at the rest tells how much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from maqee.apq.budget import Budget
from maqee.apq.choose import choose_policy
from maqee.apq.figures import policy_figures
from maqee.apq.options import SearchOptions
from maqee.apq.records import Expected, Scales
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError

FOLDS = 5
Choose = Callable[[Trace], Sequence[float]]  # samples to thresholds


def cross_validate(trace: Trace, choose: Choose, folds: int = FOLDS) -> Expected | None:
    """Choose on all parts but one and measure on that one, for each in turn; means over all samples.

    Sample i is in part i mod `folds`: calibration images come in random order. None if there are fewer than two a part.
    """
    if folds < 2:
        raise MaqeeError(f"folds: {folds} must be at least 2.")
    if trace.samples < 2 * folds:
        return None
    part = np.arange(trace.samples) % folds
    totals = np.zeros(3)
    for held_out in range(folds):
        rows = part == held_out
        figures = policy_figures(trace.select(rows), choose(trace.select(~rows)))
        totals += rows.sum() * np.array([figures.metric, figures.bops, figures.mean_exit])
    metric, bops, mean_exit = (float(value) for value in totals / trace.samples)
    return Expected(metric, bops, mean_exit, folds)


def expect(trace: Trace, budget: Budget, scales: Scales, options: SearchOptions) -> Expected | None:
    """What thresholds that are chosen within a budget, one at a time, achieve on other samples at the trace's bits."""
    return cross_validate(trace, lambda part: choose_policy(part, budget, scales, options).thresholds)
