"""The steps of a search, one by one. A state is replaced only at the end of a step, so that none is ever half done."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Literal, NamedTuple, Protocol

from maqee.apq.bits import BlockBits, Scores, candidate_swaps, raise_bits, score_bits
from maqee.apq.budget import Budget
from maqee.apq.choose import choose_policy
from maqee.apq.exact import check_exits
from maqee.apq.exact_bits import allocate_bits
from maqee.apq.figures import lone_exit_costs, policy_figures, position_of
from maqee.apq.held_out import choose_expected
from maqee.apq.measure import Measure
from maqee.apq.objective import problem_within
from maqee.apq.options import SearchOptions
from maqee.apq.records import Found, Position, Scales, Step
from maqee.apq.risks import measure_scales
from maqee.apq.search_state import SearchState
from maqee.apq.thresholds import CANDIDATES, coordinate_search, near_candidates
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError
from maqee.io import to_json
from maqee.widths import BitSettings


class _Move(NamedTuple):
    kind: Literal["swap", "exact"]
    bits: BlockBits
    notes: dict[str, Any]


class Run:
    """One search: what it was asked for, and what it need not measure again."""

    def __init__(self, measure: Measure, options: SearchOptions, budget: Budget) -> None:
        self.measure, self.options, self.budget = measure, options, budget
        budget.check_widths(measure.depth, options)
        self.total_bits = budget.total_bits(measure.depth, options)
        self.most_moves = 2 * measure.depth if options.max_swaps is None else options.max_swaps
        self.target = budget
        self.stale: Trace | None = None  # the first pass, where the options say that it is enough
        self.last: tuple[BitSettings, str, Trace] | None = None  # of a pass that may be asked for again
        self.here: tuple[Position, Trace, Scores] | None = None  # what was measured at the position now

    def start(self) -> SearchState:
        """Uniform bits, the scales, the first policy; bits that do not divide evenly go where they are worth most."""
        depth, options = self.measure.depth, self.options
        bits: BlockBits = (self.total_bits // depth,) * depth
        lowest = self.measure.trace(self._settings((options.bit_min,) * depth))
        _check_possible(self.budget, lowest, options)
        if options.last_search == "exact":
            check_exits(lowest.exits)
        trace = lowest if lowest.bits.block_weights == bits else self.measure.trace(self._settings(bits))
        scales = measure_scales(trace, lowest, options)
        self.target = self._target(trace)
        found = self._choose(trace, scales, (options.start,) * trace.exits)
        if extra := self.total_bits - sum(bits):
            bits = raise_bits(bits, self._scores(trace, found.thresholds, scales), extra)
            trace = self.measure.trace(self._settings(bits))
            found = self._choose(trace, scales, found.thresholds)
        if options.recovery_steps:  # as much training as every other allocation gets, or any swap would look good
            mass = policy_figures(trace, found.thresholds).exit_mass
            self.measure.recover(self._settings(bits), mass, options.recovery_steps)
            trace = self.measure.trace(self._settings(bits))
            found = self._choose(trace, scales, found.thresholds)
        position = position_of(trace, found, self._snapshot(0))
        self.last = position.bits, position.weights, trace
        self.stale = trace if options.refresh == "once" else None
        step = Step("start", position, True, position.excess, position.objective)
        return SearchState(
            options, self.budget, scales, position, position, (step,), target=self.target, reachable=trace.full_metric
        )

    def _target(self, trace: Trace) -> Budget:
        """The budget with everything in it said as a number; a drop counts from the first uniform widths."""
        return self.budget.or_usual(self.options).resolved(trace.float_metric, trace.full_metric)

    def _settings(self, weights: BlockBits) -> BitSettings:
        return self.measure.start.with_weights(weights)

    def resume(self, state: SearchState) -> None:
        """Bring the model to where the state was left."""
        self.target = state.target
        if self.options.refresh == "once":
            first = state.history[0].position
            self.restore(first)
            self.stale = self.measure.trace(first.bits)
        self.restore(state.now)

    def step(self, state: SearchState) -> SearchState:
        """Try one move; when none is left, search thresholds once more and finish."""
        if self.here is None or self.here[0] != state.now:
            trace = self.trace_of(state.now)
            self.here = state.now, trace, self._scores(trace, state.now.thresholds, state.scales)
        move = self._next_move(state) if len(state.history) - 1 < self.most_moves else None
        return self._finish(state) if move is None else self._try(state, move)

    def trace_of(self, position: Position) -> Trace:
        """The pass at a position whose weights the model has, from memory if it was the last one."""
        if self.last is None or self.last[:2] != (position.bits, position.weights):
            self.last = position.bits, position.weights, self._pass(position.bits)
        return self.last[2]

    def _pass(self, bits: BitSettings) -> Trace:
        """A pass at these bits, or what passes for one."""
        return self.measure.trace(bits) if self.stale is None else self.stale.at_bits(bits)

    def restore(self, position: Position) -> None:
        """Bring back the weights of a position, if any were trained."""
        if position.weights:
            self.measure.restore(position.weights)

    def _next_move(self, state: SearchState) -> _Move | None:
        assert self.here is not None
        _, trace, scores = self.here
        bits, thresholds = state.now.bits.block_weights, state.now.thresholds
        seen = {step.position.bits.block_weights for step in state.history}
        if self.options.first_move == "exact" and len(state.history) == 1:
            widths = range(self.options.bit_min, self.options.bit_max + 1)
            risks = self.measure.block_risks(state.now.bits, [widths] * len(bits), self.options.spread == "path")
            best = allocate_bits(trace, thresholds, risks, state.scales, self.options, total_bits=self.total_bits)
            if best not in seen:
                return _Move("exact", best, {})
        for swap in candidate_swaps(bits, scores, self.options, seen):
            giver, taker = swap.donor, swap.receiver
            notes = {
                "donor": giver + 1,
                "receiver": taker + 1,
                "risk_term": _number(scores.risk_up[taker] - scores.risk_down[giver]),
                "cost_term": _number(scores.cost_up[taker] - scores.cost_down[giver]),
            }
            return _Move("swap", swap.apply(bits), notes)
        return None

    def _try(self, state: SearchState, move: _Move) -> SearchState:
        bits = self._settings(move.bits)
        if self.options.recovery_steps:
            self.measure.recover(bits, state.now.figures.exit_mass, self.options.recovery_steps)
        trace = self._pass(bits)
        changed = sum(one != other for one, other in zip(bits.blocks, state.now.bits.blocks, strict=True))
        found = self._choose(trace, state.scales, state.now.thresholds, near=changed <= 2)
        position = position_of(trace, found)
        accepted = self.options.accept == "always" or position.beats(state.now)
        if accepted:
            position = replace(position, weights=self._snapshot(len(state.history)))
            self.last = position.bits, position.weights, trace
        else:
            self.restore(state.now)
        best = position if position.beats(state.best) else state.best
        step = Step(move.kind, position, accepted, best.excess, best.objective, **move.notes)
        return replace(
            state,
            now=position if accepted else state.now,
            best=best,
            history=(*state.history, step),
        )

    def _finish(self, state: SearchState) -> SearchState:
        self.restore(state.best)
        trace = self.trace_of(state.best)
        exact = self.options.last_search == "exact"
        found = self._choose(trace, state.scales, state.best.thresholds, exact=exact)
        position = position_of(trace, found, state.best.weights)
        best = position if position.beats(state.best) else state.best
        step = Step("last", position, best is position, best.excess, best.objective)
        return replace(state, now=best, best=best, history=(*state.history, step), finished=True)

    def _choose(
        self, trace: Trace, scales: Scales, start: tuple[float, ...], near: bool = False, exact: bool = False
    ) -> Found:
        if near:
            problem = problem_within(self.target, trace, scales, self.options)
            if problem.limit is None:  # at a limit no threshold can move alone
                among = CANDIDATES[self.options.candidates]
                return coordinate_search(problem, start, near_candidates(self.options.reach, among))
        return self._choose_anew(trace, scales, start, exact)

    def _choose_anew(self, trace: Trace, scales: Scales, start: tuple[float, ...], exact: bool) -> Found:
        """The best policy of a pass; the exact search looks at the samples at hand alone."""
        if not self.target.asks_for_metric or self.target.target_on == "calibration":
            return choose_policy(trace, self.target, scales, self.options, start, exact)
        return choose_expected(trace, self.target, scales, self.options, start)[0]

    def _scores(self, trace: Trace, thresholds: tuple[float, ...], scales: Scales) -> Scores:
        low, high = self.options.bit_min, self.options.bit_max
        widths = [[w for w in (b - 1, b, b + 1) if low <= w <= high] for b in trace.bits.block_weights]
        risks = self.measure.block_risks(trace.bits, widths, self.options.spread == "path")
        return score_bits(trace, thresholds, risks, scales, self.options)

    def _snapshot(self, step: int) -> str:
        """Keep trained weights. The name says which search and which step, so that a repeated step replaces it."""
        if not self.options.recovery_steps:
            return ""
        search = to_json([asdict(self.options), asdict(self.budget)])
        name = f"{hashlib.sha256(search.encode()).hexdigest()[:12]}-{step}"
        self.measure.snapshot(name)
        return name


def _check_possible(budget: Budget, trace: Trace, options: SearchOptions) -> None:
    """Complain before the work begins if not even the fewest bits and the cheapest exit are cheap enough."""
    fewest = trace.bits.with_weights((options.bit_min,) * trace.depth)
    least = float(lone_exit_costs(trace.at_bits(fewest)).min())
    if budget.max_bops is not None and least > budget.max_bops:
        raise MaqeeError(
            f"max_bops: {budget.max_bops:.4g} BOPs cannot be met: everybody leaving at the cheapest exit with "
            f"{options.bit_min} bits a block costs {least:.4g}."
        )


def _number(value: float) -> float | None:
    """A float for the history; None for NaN, which JSON does not have."""
    return float(value) if value == value else None


class AnyRun(Protocol):
    """A search that goes step by step."""

    def step(self, state: SearchState) -> SearchState:
        """The state after one more step."""


def run_steps(
    run: AnyRun, state: SearchState, stop: Callable[[], bool], on_step: Callable[[SearchState], None]
) -> None:
    """Step until the search is finished or someone asks to stop; every state goes to `on_step`."""
    while not state.finished and not stop():
        state = run.step(state)
        on_step(state)
