"""Widths of weights and activations together with thresholds: the search that is the default.

1. The errors that each width of each unit causes at the exits are measured once (`maqee.apq.unit_errors`).
2. A ladder of allocations: for several amounts to spend, the knapsack takes the pairs with the least risk. Exits decide
   what a bit costs (its block is executed as often as samples reach it) and where errors count (where samples leave).
   Each allocation is run, gets its best policy, and the next one is priced by the best policy so far.
3. Moves: single steps of one width, and exchanges of two. They are proposed in the order of what the errors promise,
   and kept only if the whole quantized network, run on the calibration samples, is better for them.

Whatever is run is also judged by cross-validation: on each part of the samples, the best allocation and policy by the
other parts. So the plan's expectation has the choice of bits inside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from maqee.apq.allocation import allocate_pairs
from maqee.apq.budget import Budget
from maqee.apq.cost import utilization
from maqee.apq.figures import exit_costs, policy_figures
from maqee.apq.held_out import expected_choice
from maqee.apq.measure import Measure
from maqee.apq.moves import Move, propose_moves
from maqee.apq.options import SearchOptions
from maqee.apq.records import FoldOutcome, Position, Scales, Step
from maqee.apq.risks import measure_scales
from maqee.apq.search_state import FrontierPoint, SearchState
from maqee.apq.trace import Trace
from maqee.apq.unit_errors import unit_risks
from maqee.apq.units import Floats, find_space
from maqee.errors import MaqeeError
from maqee.widths import BitSettings

LADDER = (1.0, 0.85, 1.2, 0.72, 1.45, 0.6, 1.8, 2.4)  # shares of what the first widths cost, in the order tried
REFINED = 3  # further rungs, halfway between the best one and its neighbours
TABLE_PASSES = 15  # calibration passes that measuring errors may take
KEPT_OPEN = 0.05  # share of the samples that counts as going to full depth, so that no block's bits are free
DROPS = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)  # of the frontier, below what the quantized model can reach


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
        self.space = find_space(measure.parts, measure.depth, options, measure.fixed_units)
        self.first = self.space.nearest(measure.start)
        self.most_moves = measure.depth if options.max_swaps is None else options.max_swaps
        self.last: tuple[BitSettings, Trace] | None = None  # of a pass that may be asked for again

    # --- steps -------------------------------------------------------------------------------------------------------

    def start(self) -> SearchState:
        """The widest and the first widths, what is to be reached, and the first policy."""
        start = self.first
        widest = self.measure.trace(self.space.widest(start))
        trace = self.measure.trace(start)
        scales = measure_scales(trace, trace, self.options)
        target = self._target(trace, widest)
        _check_possible(target, trace.at_bits(self.space.narrowest(start)))
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
        return replace(state, frontier=self._frontier(state, trace))

    def resume(self, state: SearchState) -> None:
        """Nothing to bring back: the model is run at the widths that a step asks for."""

    def step(self, state: SearchState) -> SearchState:
        """The next thing to do: errors, a rung of the ladder, a move, or the end."""
        if not state.errors:
            widest = self.space.widest(self.first)
            return replace(state, errors=self.measure.unit_errors(widest, self.space, self.options, TABLE_PASSES))
        tried = [step.spent for step in state.history if step.spent is not None]
        if len(tried) < len(LADDER) + REFINED and (share := self._next_rung(state, tried)) is not None:
            return self._climb(state, share)
        moves = sum(step.kind == "move" for step in state.history)
        move = self._next_move(state) if moves < self.most_moves else None
        if move is None:
            return self._finish(state)
        trace = self.measure.trace(self.space.settings(state.now.bits, move.chosen))
        return self._visited(state, trace, "move", {"move": move.words})

    def trace_of(self, position: Position) -> Trace:
        """The pass at a position, from memory if it was the last one."""
        if self.last is None or self.last[0] != position.bits:
            self.last = position.bits, self.measure.trace(position.bits)
        return self.last[1]

    def restore(self, position: Position) -> None:
        """Nothing was trained."""

    # --- the ladder --------------------------------------------------------------------------------------------------

    def _next_rung(self, state: SearchState, tried: list[float]) -> float | None:
        """What to spend next, as a share of what the first widths cost; None if every rung would be one again."""
        for share in LADDER:
            if share not in tried:
                return share
        shares = sorted(tried)
        best = next((step.spent for step in state.history if step.position == state.best and step.spent), 1.0)
        place = shares.index(best)
        gaps = [(shares[other] / shares[other - 1], other) for other in (place, place + 1) if 0 < other < len(shares)]
        ratio, upper = max(gaps)
        return round((shares[upper] * shares[upper - 1]) ** 0.5, 6) if ratio > 1.02 else None

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
        trace = self.measure.trace(self.space.settings(self.first, chosen))
        return self._visited(state, trace, "exact", {"spent": share, "gap": found.gap})

    def _prices(self, state: SearchState) -> Prices:
        """How often blocks are executed and exits taken under the best policy so far."""
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

    def _visited(self, state: SearchState, trace: Trace, kind: Any, notes: dict[str, Any]) -> SearchState:
        """Choose a policy for a pass, judge it, and go on from there if it is better."""
        position, outcomes = self._judge(trace, state.target, state.scales, state.best.thresholds)
        accepted = position.beats(state.best)
        best = position if accepted else state.best
        if accepted:
            self.last = trace.bits, trace
        step = Step(kind, position, accepted, best.excess, best.objective, **notes)
        return replace(
            state,
            now=best,
            best=best,
            folds=_better_folds(state.folds, outcomes),
            frontier=self._frontier(state, trace),
            history=(*state.history, step),
        )

    def _judge(
        self, trace: Trace, target: Budget, scales: Scales, start: tuple[float, ...] | None
    ) -> tuple[Position, tuple[FoldOutcome, ...]]:
        """The best policy of a pass, and what each part of the samples says of the others' choice."""
        choice = expected_choice(trace, target, scales, self.options, start)
        found = choice.found
        figures = policy_figures(trace, found.thresholds)
        return Position(trace.bits, found.thresholds, found.excess, found.objective, figures), choice.outcomes

    def _frontier(self, state: SearchState, trace: Trace) -> tuple[FrontierPoint, ...]:
        """The best of what was run for every target of the ladder."""
        if not self.options.frontier:
            return ()
        points = []
        for index, drop in enumerate(DROPS):
            target = Budget(min_metric=max(0.0, state.reachable - drop), target_on=self.budget.target_on)
            position, outcomes = self._judge(trace, target, state.scales, None)
            old = state.frontier[index] if state.frontier else None
            folds = _better_folds(old.folds if old else (), outcomes)
            kept = old.position if old is not None and not position.beats(old.position) else position
            points.append(FrontierPoint(drop, target, kept, folds))
        return tuple(points)

    def _finish(self, state: SearchState) -> SearchState:
        best = state.best
        step = Step("last", best, True, best.excess, best.objective)
        return replace(state, history=(*state.history, step), finished=True)

    # --- what was asked ----------------------------------------------------------------------------------------------

    def _target(self, trace: Trace, widest: Trace) -> Budget:
        """The budget with everything in it said as a number."""
        budget = self.budget
        if budget.like is not None:
            return replace(budget, max_bops=self._cost_like(budget, trace), like=None, max_drop=None)
        if budget.asks_for_metric or budget.max_bops is not None or self.options.objective == "paper":
            return budget.resolved(trace.float_metric, widest.full_metric)
        return budget.by_default().resolved(trace.float_metric, widest.full_metric)

    def _cost_like(self, budget: Budget, trace: Trace) -> float:
        """What uniform widths cost with their own best policy, at the same drop from their own full depth."""
        pair = budget.like_pair
        assert pair is not None
        uniform = [(pair[1], pair[1]) if unit.layer == "attention" else pair for unit in self.space.units]
        bits = self.space.settings(self.first, uniform)
        like = trace if bits == trace.bits else self.measure.trace(bits)
        drop = budget.max_drop if budget.max_drop is not None else Budget().by_default().max_drop
        assert drop is not None
        own = Budget(min_metric=max(0.0, like.full_metric - drop), target_on=budget.target_on)
        scales = measure_scales(like, like, self.options)
        found = expected_choice(like, own, scales, self.options).found
        return policy_figures(like, found.thresholds).bops


def _better_folds(old: tuple[FoldOutcome, ...], new: tuple[FoldOutcome, ...]) -> tuple[FoldOutcome, ...]:
    """For each part of the samples the better choice by the other parts."""
    if not old:
        return new
    return tuple(there if there.beats(here) else here for here, there in zip(old, new, strict=True))


def _check_possible(budget: Budget, narrowest: Trace) -> None:
    """Complain before the work begins if not even the fewest bits and the first exit are cheap enough."""
    least = float(exit_costs(narrowest).min())
    if budget.max_bops is not None and least > budget.max_bops:
        raise MaqeeError(
            f"max_bops: {budget.max_bops:.4g} BOPs cannot be met: everybody leaving at the first exit with the fewest "
            f"bits costs {least:.4g}."
        )
