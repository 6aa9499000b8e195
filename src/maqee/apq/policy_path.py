"""Policies along a ladder of prices: a quick choice under any bound of a limit, and under many bounds of it.

A price on what the limit counts turns a problem with a limit into one without, which coordinate search is good at. The
policies do not depend on the bound, so that they are found once; the best of them that keeps to a bound is looked up,
and a search within the limit then spends what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maqee.apq.objective import ExitProblem
from maqee.apq.records import Found, better
from maqee.apq.thresholds import Candidates, coordinate_search, evaluated, quantile_candidates
from maqee.policy import NEVER

_PRICES = tuple(float(price) for price in np.geomspace(1e-2, 1e2, 17))


class PolicyPath:
    """The policies of a problem that has a limit, from cheap to careful.

    Attributes:
        problem: what the policies are for.
        most_careful: the least mean of what the limit counts that one of them spends.
    """

    def __init__(
        self, problem: ExitProblem, start: Sequence[float], candidates: Candidates = quantile_candidates
    ) -> None:
        assert problem.limit is not None
        self.problem, self._candidates = problem, candidates
        spend = problem.limit.spend
        scale = float(np.ptp(problem.value)) / max(float(np.ptp(spend)), 1e-12) or 1.0
        policy = tuple(float(value) for value in start)
        policies = [(NEVER,) * problem.exits, policy]
        for price in _PRICES:
            priced = problem.priced(price * scale)
            policy = coordinate_search(priced, policy, candidates).thresholds
            policies.append(policy)
        self._known: list[tuple[float, Found]] = []  # what each spends, and its objective
        for policy in dict.fromkeys(policies):
            self._known.append((problem.spent(policy), evaluated(problem, policy)))
        self.most_careful = min(spent for spent, _ in self._known)

    def within(self, bound: float) -> Found:
        """The best policy found that keeps to a bound, or the nearest to it."""
        problem = self.problem.bounded(bound)
        assert problem.limit is not None
        best = self._known[0][1]._replace(excess=np.inf)
        for spent, found in self._known:
            trial = found._replace(excess=float(problem.limit.excess(np.array(spent))))
            best = trial if better(trial, best) else best
        return coordinate_search(problem, best.thresholds, self._candidates)


def quick_policy(problem: ExitProblem, start: Sequence[float], candidates: Candidates = quantile_candidates) -> Found:
    """A good policy in a small part of the time that a choice from several starts takes."""
    if problem.limit is None:
        return coordinate_search(problem, start, candidates)
    return PolicyPath(problem, start, candidates).within(problem.limit.bound)
