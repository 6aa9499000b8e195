"""A metric that is reached on samples that did not choose the policy.

Asked for a metric, thresholds are chosen that just reach it on the samples at hand, and so miss it on others. More is
therefore asked of the samples at hand than was asked for: as little more as makes cross-validation reach the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from maqee.apq.budget import Budget
from maqee.apq.choose import choose_policy, choose_thresholds
from maqee.apq.objective import judged, least_cost_problem, problem_within
from maqee.apq.options import SearchOptions
from maqee.apq.policy_path import PolicyPath, quick_policy
from maqee.apq.records import Expected, FoldOutcome, Found, Scales, better
from maqee.apq.thresholds import CANDIDATES, evaluated
from maqee.apq.trace import Trace
from maqee.apq.validate import expected_from, fold_outcomes, outcome_on, split_samples
from maqee.policy import NEVER

_MOST_TRIALS = 8
_ROUNDING = 1e-9  # of a mean metric


class ExpectedChoice(NamedTuple):
    """A policy, and how well the way it was chosen does on samples that had no part in it.

    Attributes:
        found: the policy. Where a metric must be reached on other samples, its excess is how far the expected metric
            misses that, and its objective the expected cost on the samples at hand.
        expected: on other samples; None if there are too few to tell.
        outcomes: the parts that it is made up of.
    """

    found: Found
    expected: Expected | None
    outcomes: tuple[FoldOutcome, ...]


def choose_expected(
    trace: Trace, budget: Budget, scales: Scales, options: SearchOptions, start: Sequence[float] | None = None
) -> tuple[Found, Expected | None]:
    """The policy at a trace's bits that is expected to keep to a budget, and what is expected of it."""
    return expected_choice(trace, budget, scales, options, start)[:2]


def expected_choice(
    trace: Trace, budget: Budget, scales: Scales, options: SearchOptions, start: Sequence[float] | None = None
) -> ExpectedChoice:
    """The same with what every part of the samples says.

    Where the budget asks for no metric, or only for one on the samples that choose, or where there are too few samples
    to split, the policy is that of `choose_policy`.
    """
    needed = budget.needed_metric(trace.float_metric, trace.full_metric)
    if needed is not None and keeps_on_others(trace, budget):
        return HeldOutChoices(trace, scales, options, start).reaching(needed)
    first = _first(trace, options, start)
    candidates = CANDIDATES[options.candidates]
    found = choose_policy(trace, budget, scales, options, first)

    def choose(part: Trace) -> Found:
        problem = problem_within(budget, part, scales, options)
        if problem.limit is None:  # one start would often end far from where several do
            return choose_thresholds(problem, first, candidates)
        return quick_policy(problem, first, candidates)

    outcomes = fold_outcomes(trace, choose)
    return ExpectedChoice(found, expected_from(outcomes), outcomes)


def better_folds(old: tuple[FoldOutcome, ...], new: tuple[FoldOutcome, ...]) -> tuple[FoldOutcome, ...]:
    """For each part of the samples the better choice by the other parts."""
    if not old:
        return new
    return tuple(there if there.beats(here) else here for here, there in zip(old, new, strict=True))


def keeps_on_others(trace: Trace, budget: Budget) -> bool:
    """Whether a metric is to be kept on samples that did not choose, and there are enough of them to tell."""
    return budget.target_on == "expected" and bool(split_samples(trace))


class HeldOutChoices:
    """Policies of one pass for any metric that other samples must reach.

    What takes long does not depend on the metric, so that a ladder of targets takes little longer than one.
    """

    def __init__(
        self, trace: Trace, scales: Scales, options: SearchOptions, start: Sequence[float] | None = None
    ) -> None:
        first, candidates = _first(trace, options, start), CANDIDATES[options.candidates]

        def path(samples: Trace) -> PolicyPath:
            return PolicyPath(least_cost_problem(judged(samples, options), 0.0, scales.cost), first, candidates)

        self.samples, self.closed = trace.samples, (NEVER,) * trace.exits
        self.splits = split_samples(trace)
        self.whole, self.parts = path(trace), [path(split.choosing) for split in self.splits]

    def reaching(self, needed: float) -> ExpectedChoice:
        """The policy that is expected to reach a metric on other samples."""

        def judged(found: Found, chosen: Sequence[Found]) -> ExpectedChoice:
            pairs = zip(self.splits, chosen, strict=True)
            outcomes = tuple(outcome_on(split.held_out, choice) for split, choice in pairs)
            expected = expected_from(outcomes)
            assert expected is not None
            missed = needed - expected.metric
            return ExpectedChoice(found._replace(excess=missed if missed > _ROUNDING else 0.0), expected, outcomes)

        def with_margin(margin: float) -> ExpectedChoice:
            bound = -(needed + margin)
            return judged(self.whole.within(bound), [part.within(bound) for part in self.parts])

        everybody = [evaluated(path.problem.bounded(-needed), self.closed) for path in (self.whole, *self.parts)]
        most = max(-self.whole.most_careful - needed, 0.0)
        return _smallest_margin(with_margin, most, judged(everybody[0], everybody[1:]), 0.5 / self.samples)


def _first(trace: Trace, options: SearchOptions, start: Sequence[float] | None) -> tuple[float, ...]:
    return (options.start,) * trace.exits if start is None else tuple(start)


def _smallest_margin(
    with_margin: Callable[[float], ExpectedChoice], most: float, best: ExpectedChoice, step: float
) -> ExpectedChoice:
    """The best choice of a few margins from 0 to `most`: halved from above until one will do, then halved in.

    Args:
        with_margin: the choice at a margin.
        most: the largest margin that the samples at hand can keep.
        best: what there is without.
        step: margins nearer to each other than this are the same.
    """
    low, high, enough = 0.0, most, False
    margin = 0.0
    for trial in range(_MOST_TRIALS):
        choice = with_margin(margin)
        best = choice if better(choice.found, best.found) else best
        met = choice.found.excess == 0
        if trial == 0:
            if met or most <= 0:
                break
            margin = most
            continue
        if met:
            high, enough = margin, True
        elif enough:
            low = margin
        else:
            high = margin
        margin = (low + high) / 2
        if high - low < step:
            break
    return best
