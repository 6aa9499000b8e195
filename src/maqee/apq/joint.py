"""Widths of weights and activations together with thresholds: the search that is the default.

1. The errors that each width of each unit causes at the exits are measured once (`maqee.apq.unit_errors`).
2. A ladder of allocations: for several amounts to spend, the knapsack takes the pairs with the least risk. Exits decide
   what a bit costs (its block is executed as often as samples reach it) and where errors count (where samples leave).
   Each allocation is run, gets its best policy, and the next one is priced by the best policy so far.
3. Moves: single steps of one width, and exchanges of two. They are proposed in the order of what the errors promise,
   and kept only if the whole quantized network, run on the calibration samples, is better for them.

Where measured time is the cost, there is neither ladder nor move: the most bits are run, or, where pairs of widths have
times of their own, each of these pairs for all blocks.

Whatever is run is also judged by cross-validation: on each part of the samples, the best allocation and policy by the
other parts. So the plan's expectation has the choice of bits inside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from maqee.apq.allocation import allocate_pairs
from maqee.apq.budget import USUAL_DROP, Budget
from maqee.apq.choose import choose_policy
from maqee.apq.cost import bops, utilization
from maqee.apq.exact import check_exits
from maqee.apq.figures import lone_exit_costs, policy_figures, position_of
from maqee.apq.held_out import better_folds, expected_choice
from maqee.apq.ladder import next_rung
from maqee.apq.measure import Measure
from maqee.apq.moves import Move, propose_moves
from maqee.apq.options import SearchOptions
from maqee.apq.records import FoldOutcome, Position, Scales, Step
from maqee.apq.risks import measure_scales
from maqee.apq.search_state import FrontierPoint, SearchState
from maqee.apq.target_ladder import best_for_targets
from maqee.apq.trace import Trace
from maqee.apq.unit_errors import KEPT_OPEN, unit_risks
from maqee.apq.units import ATTENTION, Floats, find_space, unit_bops
from maqee.errors import MaqeeError
from maqee.widths import BitPair, BitSettings


class Prices(NamedTuple):
    """What a policy says about bits.

    Attributes:
        reach: how often each block is executed.
        mass: share of the samples that leaves at each exit and at full depth.
    """

    reach: Floats
    mass: tuple[float, ...]


class JointRun:
    """One search: what it was asked for, and what it need not measure again."""

    def __init__(self, measure: Measure, options: SearchOptions, budget: Budget) -> None:
        self.measure, self.options, self.budget = measure, options, budget
        budget.check_widths(measure.depth, options)
        self.space = find_space(measure.parts, measure.depth, options, measure.can_switch)
        self.first = self.space.nearest(measure.start)  # the model's own widths may lie outside of the ranges
        self.widest = self.space.widest(self.first)
        self.timed = [self._uniform(pair.widths) for pair in options.timed_pairs]
        if self.timed:  # the fastest and the slowest
            self.first, self.widest = self.timed[0], self.timed[-1]
        self.most_moves = most_moves(measure.depth, options)
        self.last: tuple[BitSettings, Trace] | None = None  # of a pass that may be asked for again

    # --- steps -------------------------------------------------------------------------------------------------------

    def start(self) -> SearchState:
        """The widest and the first widths, what is to be reached, and the first policies."""
        widest = self.measure.trace(self.widest)
        trace = self.measure.trace(self.first)
        if self.options.last_search == "exact":
            check_exits(trace.exits)
        scales = measure_scales(trace, trace, self.options)
        target = self._target(trace, widest)
        _check_possible(target, trace.at_bits(self.space.narrowest(self.first)))
        position, folds = self._judge(trace, target, scales, None)
        self.last = trace.bits, trace
        state = SearchState(
            options=self.options,
            budget=self.budget,
            scales=scales,
            now=position,
            best=position,
            history=(Step("start", position, True, position.excess, position.objective),),
            target=target,
            reachable=widest.full_metric,
            folds=folds,
        )
        state = replace(state, frontier=self._frontier(state, trace))
        return self._visited(state, widest, "exact", {})  # it was run anyway

    def resume(self, state: SearchState) -> None:
        """Nothing to bring back: the model is run at the widths that a step asks for."""

    def step(self, state: SearchState) -> SearchState:
        """The next thing to do: errors, a rung of the ladder, a move, or the end."""
        if self.options.exit_ms is not None:  # bits are free, or pairs have times: the most bits were run at the start
            pair = self._next_timed(state)
            return self._finish(state) if pair is None else self._visited(state, self.measure.trace(pair), "exact", {})
        if not state.errors:
            passes = self.options.error_passes
            return replace(state, errors=self.measure.unit_errors(self.widest, self.space, self.options, passes))
        moves = sum(step.kind == "move" for step in state.history)
        if not moves and (share := self._next_rung(state)) is not None:
            return self._climb(state, share)
        move = self._next_move(state) if moves < self.most_moves else None
        if move is None:
            return self._finish(state)
        trace = self._run(self.space.settings(state.now.bits, move.chosen))
        return self._visited(state, trace, "move", {"move": move.words})

    def trace_of(self, position: Position) -> Trace:
        """The pass at a position, from memory if it was the last one."""
        if self.last is None or self.last[0] != position.bits:
            self.last = position.bits, self.measure.trace(position.bits)
        return self.last[1]

    def restore(self, position: Position) -> None:
        """Nothing was trained."""

    # --- pairs with times of their own -------------------------------------------------------------------------------

    def _uniform(self, pair: BitPair) -> BitSettings:
        """The same widths for all units."""
        chosen = [(pair[1], pair[1]) if unit.layer == ATTENTION else pair for unit in self.space.units]
        return self.space.settings(self.first, chosen)

    def _next_timed(self, state: SearchState) -> BitSettings | None:
        """The fastest widths that were not run yet; the first and the last were run at the start."""
        left = self.timed[1:-1][len(state.history) - 2 :]
        return left[0] if left else None

    # --- the ladder --------------------------------------------------------------------------------------------------

    def _next_rung(self, state: SearchState) -> float | None:
        """What to spend next; where a cost is given and there are no exits, what may be spent is known."""
        tried = [step.spent for step in state.history if step.spent is not None]
        if state.target.max_bops is not None and len(self.measure.exit_blocks) == 1:
            return None if tried else self._whole_budget(state.target.max_bops)
        kept = [step.spent for step in state.history if step.accepted and step.spent is not None]
        return next_rung(tried, kept[-1] if kept else 1.0, self.options)

    def _whole_budget(self, max_bops: float) -> float:
        """What may be spent on units if nobody leaves early, as a share of what the first widths cost."""
        parts, everybody = self.measure.parts, np.ones(self.measure.depth)
        pairs = zip(self.space.units, self.space.chosen(self.first), strict=True)
        units = sum(unit_bops(unit, pair, parts, everybody) for unit, pair in pairs)
        return (max_bops - (bops(parts, self.first) - units)) / units

    def _climb(self, state: SearchState, share: float) -> SearchState:
        """The best pairs for an amount to spend, run on the calibration samples."""
        prices = self._prices(state)
        risks = unit_risks(self.space, state.errors, prices.mass, self.options)
        costs = self.space.costs(self.measure.parts, prices.reach)
        first = self.space.chosen(self.first)
        spent = sum(
            float(cost[pairs.index(pair)]) for cost, pairs, pair in zip(costs, self.space.pairs, first, strict=True)
        )
        least = sum(float(cost.min()) for cost in costs)
        found = allocate_pairs(risks, costs, max(share * spent, least))
        chosen = [pairs[index] for pairs, index in zip(self.space.pairs, found.chosen, strict=True)]
        notes: dict[str, Any] = {"spent": share, "gap": found.gap}
        for step in state.history:
            if self.space.chosen(step.position.bits) == tuple(chosen):  # nothing new to be seen
                known = Step("exact", step.position, False, state.best.excess, state.best.objective, **notes)
                return replace(state, history=(*state.history, known))
        return self._visited(state, self._run(self.space.settings(self.first, chosen)), "exact", notes)

    def _prices(self, state: SearchState) -> Prices:
        """How often blocks are executed and exits taken under the best policy so far.

        Some samples always count as going to full depth, so that no block's bits are free.
        """
        if self.options.prices == "full-depth":
            exits = len(state.best.figures.exit_mass)
            return Prices(np.ones(self.measure.depth), (*(0.0,) * (exits - 1), 1.0))
        *early, full = ((1 - KEPT_OPEN) * share for share in state.best.figures.exit_mass)
        mass = (*early, full + KEPT_OPEN)
        return Prices(utilization(mass, self.measure.exit_blocks, self.measure.depth), mass)

    # --- moves -------------------------------------------------------------------------------------------------------

    def _next_move(self, state: SearchState) -> Move | None:
        prices = self._prices(state)
        risks = unit_risks(self.space, state.errors, prices.mass, self.options)
        costs = self.space.costs(self.measure.parts, prices.reach)
        run_before = [self.space.chosen(step.position.bits) for step in state.history]
        return propose_moves(self.space, self.space.chosen(state.now.bits), risks, costs, run_before)

    # --- what was run ------------------------------------------------------------------------------------------------

    def _run(self, bits: BitSettings) -> Trace:
        """A pass at these bits; before a training, at their cost but with the most weight bits, as if it were over."""
        if not self.options.before_training:
            return self.measure.trace(bits)
        pairs = zip(self.space.units, self.space.pairs, self.space.chosen(bits), strict=True)
        chosen = [pair if unit.layer == ATTENTION else (most[-1][0], pair[1]) for unit, most, pair in pairs]
        return self.measure.trace(self.space.settings(bits, chosen)).at_bits(bits)

    def _visited(self, state: SearchState, trace: Trace, kind: Any, notes: dict[str, Any]) -> SearchState:
        """Choose a policy for a pass, judge it, and go on from there if it is better."""
        position, outcomes = self._judge(trace, state.target, state.scales, state.best.thresholds)
        accepted = position.beats(state.best) and not (kind == "move" and self._only_lucky(state, position))
        best = position if accepted else state.best
        if accepted and not self.options.before_training:  # else it is not a pass at its own bits
            self.last = trace.bits, trace
        step = Step(kind, position, accepted, best.excess, best.objective, **notes)
        return replace(
            state,
            now=best,
            best=best,
            folds=better_folds(state.folds, outcomes),
            frontier=self._frontier(state, trace),
            history=(*state.history, step),
        )

    def _only_lucky(self, state: SearchState, position: Position) -> bool:
        """Whether a better metric within the same cost goes with a higher loss: a few answers, not a better network."""
        same = state.target.max_cost is not None and position.excess == state.best.excess == 0
        return same and self.options.objective == "direct" and position.figures.loss > state.best.figures.loss

    def _judge(
        self, trace: Trace, target: Budget, scales: Scales, start: tuple[float, ...] | None
    ) -> tuple[Position, tuple[FoldOutcome, ...]]:
        """The best policy of a pass, and what each part of the samples says of the others' choice."""
        choice = expected_choice(trace, target, scales, self.options, start)
        return position_of(trace, choice.found), choice.outcomes

    def _frontier(self, state: SearchState, trace: Trace) -> tuple[FrontierPoint, ...]:
        return best_for_targets(state, trace) if self.options.frontier else ()

    def _finish(self, state: SearchState) -> SearchState:
        """The end; the exact search for thresholds comes here, and looks at the samples at hand alone.

        Before a training, the network as it is gets thresholds of its own, and figures that are true of it.
        """
        best, target, folds = state.best, state.target, state.folds
        if self.options.before_training:
            best, folds = self._judge(self.trace_of(best), target, state.scales, best.thresholds)
        if self.options.last_search == "exact" and not (target.asks_for_metric and target.target_on == "expected"):
            trace = self.trace_of(best)
            found = choose_policy(trace, target, state.scales, self.options, best.thresholds, exact=True)
            position = position_of(trace, found)
            best = position if position.beats(best) else best
        step = Step("last", best, True, best.excess, best.objective)
        return replace(state, now=best, best=best, folds=folds, history=(*state.history, step), finished=True)

    # --- what was asked ----------------------------------------------------------------------------------------------

    def _target(self, trace: Trace, widest: Trace) -> Budget:
        """The budget with everything in it said as a number."""
        budget = self.budget
        if budget.like is not None:
            return replace(budget, max_bops=self._cost_like(budget, trace), like=None, max_drop=None)
        return budget.or_usual(self.options).resolved(trace.float_metric, widest.full_metric)

    def _cost_like(self, budget: Budget, trace: Trace) -> float:
        """What uniform widths cost with their own best policy, at the same drop from their own full depth."""
        pair = budget.like_pair
        assert pair is not None
        bits = self._uniform(pair)
        like = trace if bits == trace.bits else self.measure.trace(bits)
        drop = USUAL_DROP if budget.max_drop is None else budget.max_drop
        own = Budget(min_metric=max(0.0, like.full_metric - drop), target_on=budget.target_on)
        scales = measure_scales(like, like, self.options)
        found = expected_choice(like, own, scales, self.options).found
        return policy_figures(like, found.thresholds).bops


def most_moves(depth: int, options: SearchOptions) -> int:
    """Moves to try; a frontier has fewer, because they are good for one target only."""
    if options.max_swaps is not None:
        return options.max_swaps
    return depth // (4 if options.frontier else 2)


def _check_possible(budget: Budget, narrowest: Trace) -> None:
    """Complain before the work begins if not even the fewest bits and the cheapest exit are cheap enough."""
    least = float(lone_exit_costs(narrowest).min())
    if budget.max_cost is not None and least > budget.max_cost:
        raise MaqeeError(
            f"{budget.asked_cost} cannot be met: everybody leaving at the cheapest exit with the fewest bits "
            f"costs {least:.4g}."
        )
