"""Algorithm 1: thresholds for the bits, bits for the thresholds, in turn.

Three things are added to what is printed, without which it neither ends nor goes downhill: an allocation is tried only
once, a swap stays only if the objective is better for it, and the best position is returned, not the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from maqee.apq.budget import Budget
from maqee.apq.measure import Measure
from maqee.apq.options import SearchOptions
from maqee.apq.search_state import Position, SearchState
from maqee.apq.steps import Run, run_steps
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError
from maqee.interrupt import catch_interrupt

_UNTRAINED = "untrained"


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The best position found.

    Attributes:
        best: bits, thresholds and what they achieve.
        state: the whole search; `state.history` tells how it went, and an unfinished one can go on from here.
        trace: the calibration pass at these bits, from which other policies can be had without the model.
    """

    best: Position
    state: SearchState
    trace: Trace


def search(
    measure: Measure,
    options: SearchOptions | None = None,
    budget: Budget | None = None,
    state: SearchState | None = None,
    on_step: Callable[[SearchState], None] = lambda state: None,
) -> SearchResult:
    """Choose bits and thresholds together.

    Ctrl-C ends the search after the step at hand (asked twice, at once) and returns the best position so far.

    Args:
        measure: the model.
        options: how to search.
        budget: what the plan may cost, or must achieve.
        state: go on from here; options and budget must be those it was made with, or left out.
        on_step: called after every step with a state that the search can go on from; write it to a file.
    """
    if state is not None:
        _check_state(state, measure, options, budget)
        options, budget = state.options, state.budget
    run = Run(measure, options or SearchOptions(), budget or Budget())
    states: list[SearchState] = []  # only the last is kept

    def keep(state: SearchState) -> None:
        states[:] = [state]
        on_step(state)

    with catch_interrupt() as stop:
        if state is None:
            keep(run.start())
        else:
            states.append(state)
            run.resume(state)
        with suppress(KeyboardInterrupt):  # the step at hand is left undone
            run_steps(run, states[0], lambda: stop.asked, keep)
    last = states[0]
    if last.finished:
        run.budget.check_met(last.best.excess, last.best.figures)
    run.restore(last.best)
    return SearchResult(last.best, last, run.trace_of(last.best))


def search_frontier(
    measure: Measure, lambdas: Sequence[float], options: SearchOptions | None = None, budget: Budget | None = None
) -> list[SearchResult]:
    """A whole search for every price of cost; those that no other beats in cost and metric, by ascending cost."""
    options = options or SearchOptions()
    if budget is not None and budget.asks_for_metric:
        raise MaqeeError(
            "min_metric, max_drop: a frontier over lambda_outer does not see them: search once for each metric instead."
        )
    if options.recovery_steps:
        measure.snapshot(_UNTRAINED)
    results: list[SearchResult] = []
    for price in lambdas:
        if options.recovery_steps:
            measure.restore(_UNTRAINED)
        results.append(search(measure, replace(options, lambda_outer=price), budget))
        if not results[-1].state.finished:  # interrupted
            break
    kept: list[SearchResult] = []
    for result in sorted(results, key=lambda result: (result.best.figures.bops, -result.best.figures.metric)):
        if not kept or result.best.figures.metric > kept[-1].best.figures.metric:
            kept.append(result)
    return kept


def _check_state(state: SearchState, measure: Measure, options: SearchOptions | None, budget: Budget | None) -> None:
    if (options or state.options, budget or state.budget) != (state.options, state.budget):
        raise MaqeeError("The search to go on with had other options or another budget: start a new one.")
    if len(state.now.bits) != measure.depth:
        raise MaqeeError(f"The search to go on with is for {len(state.now.bits)} blocks, not {measure.depth}.")
