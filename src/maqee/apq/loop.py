"""Algorithm 1: thresholds for the bits, bits for the thresholds, in turn.

Three things are added to what is printed, without which it neither ends nor goes downhill: an allocation is tried only
once, a swap stays only if the objective is better for it, and the best position is returned, not the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from maqee.apq.budget import Budget
from maqee.apq.figures import policy_figures
from maqee.apq.held_out import expected_choice
from maqee.apq.joint import JointRun, most_moves
from maqee.apq.ladder import REFINED, rungs_of
from maqee.apq.measure import Measure
from maqee.apq.options import SearchOptions
from maqee.apq.plan import Plan, library_versions
from maqee.apq.records import Expected, Position
from maqee.apq.search_state import SearchState
from maqee.apq.steps import Run, run_steps
from maqee.apq.trace import Trace
from maqee.apq.validate import expected_from
from maqee.errors import MaqeeError
from maqee.interrupt import catch_interrupt


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

    def check_met(self) -> None:
        """Complain if a finished search found nothing within its budget, and say what is nearest."""
        if self.state.finished:
            self.state.target.check_met(self.best.excess, self.best.figures)


def search(
    measure: Measure,
    options: SearchOptions | None = None,
    budget: Budget | None = None,
    state: SearchState | None = None,
    on_step: Callable[[SearchState], None] = lambda state: None,
) -> SearchResult:
    """Choose bits and thresholds together.

    Ctrl-C ends the search after the step at hand (asked twice, at once) and returns the best position so far. A budget
    that cannot be met gives what is nearest; `SearchResult.check_met` complains about it.

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
    options, budget = options or SearchOptions(), budget or Budget()
    run = JointRun(measure, options, budget) if options.bits == "both" else Run(measure, options, budget)
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
    run.restore(last.best)
    trace = run.trace_of(last.best)
    # What a search before a training expects of it is not what the network does now, if it was stopped halfway.
    best = replace(last.best, figures=policy_figures(trace, last.best.thresholds))
    return SearchResult(best, last, trace)


def make_plan(
    result: SearchResult, *, exit_kinds: Sequence[str], method: str, seed: int, budget: Budget | None = None
) -> Plan:
    """The plan of a search's best position.

    Args:
        result: of the search.
        exit_kinds: kind of each exit's head.
        method: quantization method.
        seed: random seed.
        budget: what the user asked for, if not what thresholds were chosen for (before training they are for less).
    """
    trace, state = result.trace, result.state
    return Plan(
        bits=result.best.bits,
        thresholds=result.best.thresholds,
        exit_blocks=trace.exit_blocks[:-1],
        exit_kinds=tuple(exit_kinds),
        method=method,
        task=trace.task,
        checkpoint=trace.model,
        seed=seed,
        versions=library_versions(),
        budget=budget or state.budget,
        got=result.best.figures,
        options=state.options,
        scales=state.scales,
        history=state.history,
        expected=_expected(result) if state.finished else None,
    )


def most_steps(depth: int, options: SearchOptions) -> int:
    """Steps that a search takes at most, for a progress bar."""
    if options.bits == "weights":
        return (2 * depth if options.max_swaps is None else options.max_swaps) + 2
    return len(rungs_of(options)) + REFINED + most_moves(depth, options) + 3


def _expected(result: SearchResult) -> Expected | None:
    """On samples that did not choose: bits and thresholds where the search has kept that, else thresholds alone."""
    state = result.state
    if state.folds:
        return expected_from(state.folds)
    return expected_choice(result.trace, state.target, state.scales, state.options).expected


def _check_state(state: SearchState, measure: Measure, options: SearchOptions | None, budget: Budget | None) -> None:
    if (options or state.options, budget or state.budget) != (state.options, state.budget):
        raise MaqeeError("The search to go on with had other options or another budget: start a new one.")
    if state.now.bits.depth != measure.depth:
        raise MaqeeError(f"The search to go on with is for {state.now.bits.depth} blocks, not {measure.depth}.")
