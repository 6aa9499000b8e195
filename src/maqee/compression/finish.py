"""The end of a search with recovery: train at the bits that were found, then choose thresholds for what came out."""

from __future__ import annotations

from dataclasses import replace

from maqee.apq import Budget, Position, SearchResult, Step, Trace, choose_policy, policy_figures
from maqee.compression.model_measure import ModelMeasure
from maqee.compression.recovery import Recovery

BEFORE, AFTER = "before-recovery", "after-recovery"


def recover_and_choose(
    measure: ModelMeasure, recovery: Recovery, result: SearchResult, budget: Budget, steps: int
) -> SearchResult:
    """Train, measure again, and keep the outcome only if the objective is better for it.

    Whether the budget is met is for the caller to look at: what was trained is kept in any case. Confidences of the
    model before training are of no use any more, so thresholds are searched from the start.
    """
    best, state = result.best, result.state
    measure.quantized.set_block_bits(best.bits)
    if measure.has_snapshot(AFTER):  # training was over when the last call was stopped
        measure.restore(AFTER)
    else:
        measure.snapshot(BEFORE)
        recovery(measure.quantized, best.bits, best.figures.exit_mass, steps)
        measure.snapshot(AFTER)
    trace = measure.trace(best.bits)
    position = choose_position(trace, result, budget, AFTER)
    step = Step("recovery", position, True, position.excess, position.objective)
    if not budget.asks_for_metric and not position.beats(best):
        measure.restore(BEFORE)
        trace, position = measure.trace(best.bits), best
        step = replace(step, accepted=False, best_excess=best.excess, best_objective=best.objective)
    state = replace(state, budget=budget, best=position, now=position, history=(*state.history, step))
    return SearchResult(position, state, trace)


def choose_position(trace: Trace, result: SearchResult, budget: Budget, weights: str) -> Position:
    """The best policy for a trace, all else as in the search before."""
    options, scales = result.state.options, result.state.scales
    found = choose_policy(trace, budget, scales, options, result.best.thresholds, options.last_search == "exact")
    figures = policy_figures(trace, found.thresholds)
    return Position(trace.bits.weights, found.thresholds, found.excess, found.objective, figures, weights)
