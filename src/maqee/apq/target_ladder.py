"""Plans for a ladder of targets from one search: whatever is run may be the best there is for some of them."""

from __future__ import annotations

from dataclasses import replace

from maqee.apq.budget import Budget
from maqee.apq.figures import position_of
from maqee.apq.held_out import HeldOutChoices, better_folds, expected_choice, keeps_on_others
from maqee.apq.search_state import FrontierPoint, SearchState
from maqee.apq.trace import Trace

# Targets, below what the quantized model can reach; the cost between two of them must not leap.
DROPS = (0.0, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2)


def best_for_targets(state: SearchState, trace: Trace) -> tuple[FrontierPoint, ...]:
    """The best position for every target, now that one more allocation was run.

    Args:
        state: of the search before.
        trace: the pass at the new allocation.
    """
    expected = Budget(target_on=state.budget.target_on)
    choices = None
    if keeps_on_others(trace, expected):
        choices = HeldOutChoices(trace, state.scales, state.options, state.best.thresholds)
    known = {point.drop: point for point in state.frontier}
    points: list[FrontierPoint] = []
    for drop in DROPS:
        needed = max(0.0, state.reachable - drop)
        target = replace(expected, min_metric=needed)
        if choices is None:
            choice = expected_choice(trace, target, state.scales, state.options, state.best.thresholds)
            found, outcomes = choice.found, choice.outcomes
        else:
            found, _, outcomes = choices.reaching(needed)
        position, old = position_of(trace, found), known.get(drop)
        folds = better_folds(old.folds if old else (), outcomes)
        kept = old.position if old is not None and not position.beats(old.position) else position
        stricter = points[-1] if points else None
        if stricter is not None and not kept.beats(stricter.position) and stricter.position.excess <= 0:
            kept, folds = stricter.position, stricter.folds  # what is good enough for more is for less
        points.append(FrontierPoint(drop, target, kept, folds))
    return tuple(points)
