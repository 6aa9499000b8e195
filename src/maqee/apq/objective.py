"""The outer objective J of a policy, arranged so that thresholds can be searched by sorting and adding.

J = sum_e R_e + lambda BOPs falls apart into what each sample adds by leaving where it leaves (its share of PGR and of
cost), less what it saves where it passes a closed exit (the head there), what each exit adds by having samples near its
threshold (BSR), and a constant (QID and SQNR do not depend on thresholds). Nothing else about risks is needed to choose
thresholds, so the search knows only these four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maqee.apq.budget import Budget
from maqee.apq.candidates import quantile_values
from maqee.apq.cost import closing_saves
from maqee.apq.figures import exit_costs, head_costs
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales
from maqee.apq.risks import (
    boundary_confidence,
    exit_of_block,
    inverse_sqnr,
    pgr,
    qid,
    reference_loss,
    representation_risk,
)
from maqee.apq.smoothing import smoothed
from maqee.apq.trace import Trace
from maqee.policy import NEVER, take_exits

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Limit:
    """The mean of `spend` over the policy's samples may be at most `bound`.

    Attributes:
        spend: (n, E + 1) what a sample spends by leaving at each exit; minus its correctness to ask for accuracy.
        bound: the most that may be spent.
        heads: (E,) what of it the head of each exit is, which whoever passes the exit saves where it is closed.
    """

    spend: Floats
    bound: float
    heads: Floats | float = 0.0

    @property
    def allowance(self) -> float:
        """The bound, with rounding errors forgiven."""
        return self.bound + 1e-9 * max(1.0, abs(self.bound))

    def excess(self, spent: Floats) -> Floats:
        """How much too much was spent."""
        return np.maximum(np.asarray(spent) - self.allowance, 0.0)


@dataclass(frozen=True, eq=False)
class ExitProblem:
    """Choose thresholds so that the objective is least, within the limit if there is one.

    Attributes:
        confidence: (n, E) what thresholds are compared with.
        value: (n, E + 1) what a sample adds to the mean by leaving at each exit.
        boundary: (n, E) the confidence that counts for BSR.
        tau: (E,) margins of BSR.
        boundary_weight: (E,) price of one BSR.
        reaching: only samples that reach an exit count for its BSR.
        constant: added to every policy's objective.
        limit: what policies must keep to.
        heads: (E,) what of `value` the head of each exit is, which whoever passes the exit saves where it is closed.
    """

    confidence: NDArray[np.float32]
    value: Floats
    boundary: Floats
    tau: Floats
    boundary_weight: Floats
    reaching: bool = False
    constant: float = 0.0
    limit: Limit | None = None
    heads: Floats | float = 0.0

    @property
    def exits(self) -> int:
        """Number of exits, full depth not counted."""
        return self.confidence.shape[1]

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.confidence.shape[0]

    @cached_property
    def orders(self) -> list[NDArray[np.intp]]:
        """For each exit the samples by ascending confidence: sorted once, used in every scan."""
        return [np.argsort(self.confidence[:, index], kind="stable") for index in range(self.exits)]

    @cached_property
    def boundary_orders(self) -> list[NDArray[np.intp]]:
        """The same by the confidence that counts for BSR."""
        return [np.argsort(self.boundary[:, index], kind="stable") for index in range(self.exits)]

    @cached_property
    def quantiles(self) -> list[Floats]:
        """For each exit, ascending, at most 100 of the confidences seen, with 0 and never."""
        return [quantile_values(self.confidence[:, index]) for index in range(self.exits)]

    @cached_property
    def turning_points(self) -> list[Floats]:
        """For each exit, ascending, thresholds that no other number of single precision beats, and never.

        The objective is constant between events. Going up, a best stretch ends where a sample stops leaving (its own
        confidence, the last threshold that lets it go) or just before a sample comes near enough to count for BSR.
        Confidences are single precision, so "just before" is one of the next two such numbers.
        """
        points = []
        for index in range(self.exits):
            ends = self.confidence[:, index]
            if self.boundary_weight[index]:
                meet = (self.boundary[:, index] - self.tau[index]).astype(np.float32)
                before = np.nextafter(meet, np.float32(-1))
                ends = np.concatenate([ends, before, np.nextafter(before, np.float32(-1))])
            values = np.unique(ends).astype(np.float64)
            points.append(np.append(values[(values >= 0) & (values <= 1)], NEVER))
        return points

    def evaluate(self, thresholds: Sequence[float]) -> tuple[float, float]:
        """(excess over the limit, objective) of a policy. Policies compare by this pair: the limit comes first."""
        taken = take_exits(self.confidence, thresholds)
        total = self._mean(self.value, self.heads, thresholds, taken) + self.constant
        for index in range(self.exits):
            if self.boundary_weight[index]:
                total += float(self.boundary_weight[index]) * self._near(index, thresholds[index], taken)
        if self.limit is None:
            return 0.0, total
        spent = self._mean(self.limit.spend, self.limit.heads, thresholds, taken)
        return float(self.limit.excess(np.array(spent))), total

    def spent(self, thresholds: Sequence[float]) -> float:
        """The mean of what a policy spends of the limit."""
        assert self.limit is not None
        taken = take_exits(self.confidence, thresholds)
        return self._mean(self.limit.spend, self.limit.heads, thresholds, taken)

    def priced(self, price: float) -> ExitProblem:
        """The same samples with a price on what is spent in place of the limit."""
        assert self.limit is not None
        value = self.value + price * self.limit.spend
        heads = np.asarray(self.heads) + price * np.asarray(self.limit.heads)
        return self._sorted_already(replace(self, value=value, heads=heads, limit=None))

    def bounded(self, bound: float) -> ExitProblem:
        """The same problem with another bound of its limit."""
        assert self.limit is not None
        return self._sorted_already(replace(self, limit=replace(self.limit, bound=bound)))

    def _sorted_already(self, other: ExitProblem) -> ExitProblem:
        """Hand on what depends on confidences alone, or sorting would take longer than searching."""
        kept = ("orders", "boundary_orders", "quantiles", "turning_points")
        other.__dict__.update({name: getattr(self, name) for name in kept})
        return other

    def _mean(
        self, values: Floats, heads: Floats | float, thresholds: Sequence[float], taken: NDArray[np.intp]
    ) -> float:
        """What samples that leave at `taken` come to on average; heads of closed exits are not in it."""
        chosen = values[np.arange(self.samples), taken] - closing_saves(heads, thresholds)[taken]
        return float(chosen.sum() / self.samples)

    def _near(self, index: int, threshold: float, taken: NDArray[np.intp]) -> float:
        rho, tau = self.boundary[:, index], self.tau[index]
        near = (rho >= threshold - tau) & (rho <= threshold + tau)
        if self.reaching:
            near &= taken >= index
        return int(near.sum()) / self.samples


def outer_problem(trace: Trace, scales: Scales, options: SearchOptions) -> ExitProblem:
    """The threshold search of Algorithm 1 at the trace's bits."""
    weight = _exit_weights(trace, options)  # how often the sum meets each exit
    value = np.tile(options.lambda_outer * exit_costs(trace) / scales.cost, (trace.samples, 1))
    reference = reference_loss(trace, options)
    price = options.alpha * options.use_pgr / scales.pgr
    constant = _representation(trace, scales, options)
    if options.pgr_samples == "leaving":
        gap = trace.loss.astype(np.float64) - reference[:, None]
        value += price * np.append(weight, 1.0) * gap
    else:
        constant += float((price * weight * pgr(trace.loss, reference)[:-1]).sum())
    return ExitProblem(
        confidence=trace.confidence[:, :-1],
        value=value,
        boundary=boundary_confidence(trace, options).astype(np.float64),
        tau=np.array(scales.tau),
        boundary_weight=options.alpha * options.use_bsr * weight / scales.bsr,
        reaching=options.bsr_samples == "reaching",
        constant=constant,
        heads=options.lambda_outer * head_costs(trace) / scales.cost,
    )


def least_cost_problem(trace: Trace, target: float, cost_scale: float = 1.0) -> ExitProblem:
    """Least expected cost with a mean metric of at least `target`; no risks, the metric speaks for itself."""
    return ExitProblem(
        confidence=trace.confidence[:, :-1],
        value=np.tile(exit_costs(trace) / cost_scale, (trace.samples, 1)),
        boundary=trace.float_confidence[:, :-1].astype(np.float64),
        tau=np.zeros(trace.exits),
        boundary_weight=np.zeros(trace.exits),
        limit=Limit(-trace.correct.astype(np.float64), -target),
        heads=head_costs(trace) / cost_scale,
    )


def with_cost_limit(problem: ExitProblem, trace: Trace, most: float, cost_scale: float = 1.0) -> ExitProblem:
    """The same objective, with an expected cost of at most `most`."""
    spend = np.tile(exit_costs(trace) / cost_scale, (trace.samples, 1))
    return replace(problem, limit=Limit(spend, most / cost_scale, head_costs(trace) / cost_scale))


def best_metric_problem(trace: Trace, most: float, cost_scale: float = 1.0) -> ExitProblem:
    """The best mean metric with an expected cost of at most `most`; of equally good policies the cheapest.

    Cost is in the objective with so small a price that all a policy may spend weighs half as much as one sample's
    answer. Counted against what may be spent, it means the same at all bits.
    """
    tie_break = 0.5 / trace.samples
    problem = ExitProblem(
        confidence=trace.confidence[:, :-1],
        value=tie_break * exit_costs(trace) / most - trace.correct.astype(np.float64),
        boundary=trace.float_confidence[:, :-1].astype(np.float64),
        tau=np.zeros(trace.exits),
        boundary_weight=np.zeros(trace.exits),
        heads=tie_break * head_costs(trace) / most,
    )
    return with_cost_limit(problem, trace, most, cost_scale)


def problem_within(budget: Budget, trace: Trace, scales: Scales, options: SearchOptions) -> ExitProblem:
    """The threshold search at the trace's bits under a budget.

    Asked for a metric, it is the least cost that reaches it. Asked for a cost, it is the best metric within it or, with
    the paper's objective, the least J within it. Asked for neither, it is the least J.
    """
    scored = judged(trace, options) if budget.target_on == "expected" else trace
    if (needed := budget.needed_metric(trace.float_metric, trace.full_metric)) is not None:
        return least_cost_problem(scored, needed, scales.cost)
    most = budget.max_cost
    if most is not None and options.objective == "direct":
        return best_metric_problem(scored, most, scales.cost)
    problem = outer_problem(trace, scales, options)
    return problem if most is None else with_cost_limit(problem, trace, most, scales.cost)


def judged(trace: Trace, options: SearchOptions) -> Trace:
    """A trace with the scores that choose thresholds for samples other than its own."""
    return smoothed(trace) if options.scores == "smoothed" else trace


def _exit_weights(trace: Trace, options: SearchOptions) -> Floats:
    """How many terms of the sum over risks carry each exit's PGR and BSR: (E,)."""
    if options.outer_sum == "exits":
        return np.ones(trace.exits)
    charged = exit_of_block(trace.exit_blocks, trace.depth, options.headless)
    return np.bincount(charged[charged >= 0], minlength=trace.exits).astype(np.float64)


def _representation(trace: Trace, scales: Scales, options: SearchOptions) -> float:
    """QID and SQNR of the blocks in the sum."""
    risks = representation_risk(qid(trace), inverse_sqnr(trace), scales, options)
    if options.outer_sum == "exits":
        risks = risks[np.array(trace.exit_blocks[:-1], dtype=np.intp) - 1]
    return float(risks.sum())
