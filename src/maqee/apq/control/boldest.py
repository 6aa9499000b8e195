"""Risk control of a finished policy: the boldest member of a family that is still safe, and what "safe" means.

The search minimizes an objective and promises nothing. Here the finished (quantized) model is kept, one knob of its
policy is turned, and calibration samples decide how far it may be turned (Jazbec et al. 2024, "Fast yet Safe"). The
risk is the expected gap between the loss at the exit taken and the loss at full depth of the same quantized model.

Which risk each method controls; g is the gap of one sample, which is negative where the early exit does better:

* ``naive``: the signed mean of g is below epsilon on the calibration samples. Nothing is promised for others.
* ``crc``: conformal risk control, E[g] <= epsilon in expectation over calibration sets and the new sample. It needs
  losses that only grow with boldness, which g need not do, so it runs on the envelope of each sample: the largest g
  over all members that are at most as bold. Never exiting is a member, so the envelope is at least 0 and at least g:
  the promise holds for the envelope, the clipped gap and the signed gap. (The envelope of the *mean* would be enough
  only for infinitely many samples.)
* ``ucb`` and ``ltt``: with probability 1 - delta over calibration sets, E[max(g, 0)] <= epsilon, and therefore also
  E[g] <= epsilon. Members are tested in order and testing stops at the first failure, so the first unsafe member would
  have to pass a test of level delta: neither a monotone risk nor a correction for many tests is needed.

Never exiting has no gap by definition; it needs no test and is what remains when nothing else is safe. All promises
need calibration samples that are drawn like future ones and were not used to choose bits, thresholds or weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maqee.apq.control.bounds import betting_bound, betting_log_capital, p_value_bound, risk_p_value
from maqee.apq.control.family import Array, as_floats, check_family, policy_gaps
from maqee.apq.control.guarantee import Guarantee, Method, statement
from maqee.apq.control.losses import BOUNDS, LossName
from maqee.errors import MaqeeError, suggest


class _Choice(NamedTuple):
    member: int  # 0 is never
    risks: Array  # (members,)
    bound: float | None = None
    p_value: float | None = None


def control(
    confidence: ArrayLike,
    losses: ArrayLike,
    family: ArrayLike,
    *,
    method: Method,
    loss: LossName,
    epsilon: float,
    delta: float | None = None,
    seed: int = 0,
) -> Guarantee:
    """Choose the boldest safe member of a family of policies.

    Args:
        confidence: (n, exits), of the quantized model, on calibration samples.
        losses: (n, exits + 1), at every exit and at full depth, see maqee.apq.control.losses.
        family: (members, exits) thresholds from never to bold, see maqee.apq.control.family.
        method: naive, crc, ucb or ltt.
        loss: which loss it is; sets the bound B (1 or 2).
        epsilon: tolerated risk, between 0 and B.
        delta: tolerated probability of failure, between 0 and 1; ucb and ltt need it, the others do not use it.
        seed: ucb bets on one sample after the other; they are shuffled first, because data often come sorted.
    """
    gaps, table = _checked(confidence, losses, family, loss)
    level = _check_request(method, loss, epsilon, delta)
    choice = _choose(gaps, method, epsilon, level, BOUNDS[loss], seed)
    never = choice.member == 0
    return Guarantee(
        method=method,
        loss=loss,
        epsilon=float(epsilon),
        delta=level if method in ("ucb", "ltt") else None,
        n=gaps.shape[0],
        thresholds=tuple(table[choice.member].tolist()),
        never_exits=never,
        empirical_gap=float(gaps[:, choice.member].mean()),
        empirical_risk=float(choice.risks[choice.member]),
        bound=None if method == "naive" else 0.0 if never else choice.bound,
        p_value=choice.p_value,
        statement=statement(method, loss, epsilon, level, gaps.shape[0], never),
    )


def _choose(gaps: Array, method: Method, epsilon: float, delta: float, bound: float, seed: int) -> _Choice:
    n = gaps.shape[0]
    if method == "naive":
        risks = gaps.mean(axis=0)
        return _Choice(int(np.flatnonzero(risks < epsilon).max()), risks)  # never is there: 0 < epsilon
    if method == "crc":
        risks = np.maximum.accumulate(gaps, axis=1).mean(axis=0)
        member = _last_before_failure((n * risks + bound) / (n + 1) <= epsilon)
        return _Choice(member, risks, float((n * risks[member] + bound) / (n + 1)))
    clipped = np.maximum(gaps, 0.0)
    risks = clipped.mean(axis=0)
    if method == "ucb":
        clipped = clipped[np.random.default_rng(seed).permutation(n)]
        # U < epsilon, asked without searching for U: the capital rises strictly with the mean it bets against.
        passed = betting_log_capital(clipped, epsilon, delta, bound) > math.log(1 / delta)
        member = _last_before_failure(passed & (risks < epsilon))
        return _Choice(member, risks, float(betting_bound(clipped[:, member], delta, bound)))
    p_values = risk_p_value(clipped, epsilon, bound)
    member = _last_before_failure(p_values <= delta)
    upper = float(p_value_bound(clipped[:, member], delta, bound))
    return _Choice(member, risks, upper, float(p_values[member]) if member else None)


def _last_before_failure(passed: NDArray[np.bool_]) -> int:
    """Walk from safe to bold and stop before the first failure; member 0, never, needs no test."""
    failures = np.flatnonzero(~passed[1:])
    return int(failures[0]) if failures.size else passed.size - 1


def _checked(confidence: ArrayLike, losses: ArrayLike, family: ArrayLike, loss: str) -> tuple[Array, Array]:
    if loss not in BOUNDS:
        raise suggest(loss, list(BOUNDS), "loss")
    sure, cost = as_floats(confidence), np.asarray(losses, dtype=np.float64)
    if sure.ndim != 2 or 0 in sure.shape:
        raise MaqeeError(f"Confidences must be (samples, exits), not of shape {sure.shape}.")
    if cost.shape != (sure.shape[0], sure.shape[1] + 1):
        raise MaqeeError(
            f"For confidences of {sure.shape[0]} samples at {sure.shape[1]} exits, losses must be of shape "
            f"{(sure.shape[0], sure.shape[1] + 1)} (full depth last), not {cost.shape}."
        )
    if not np.isfinite(sure).all():
        raise MaqeeError("Confidences must be numbers, without NaN or infinity: look at the quantized model's outputs.")
    if not np.isfinite(cost).all() or cost.min() < 0 or cost.max() > BOUNDS[loss] + 1e-6:
        raise MaqeeError(f"The {loss} loss goes from 0 to {BOUNDS[loss]:g}: give such losses, without NaN.")
    table = check_family(family, sure.shape[1])
    return policy_gaps(sure, np.minimum(cost, BOUNDS[loss]), table), table


def _check_request(method: str, loss: str, epsilon: float, delta: float | None) -> float:
    """Delta as a number; 1 (nothing is promised) for the methods that do without."""
    if method not in get_args(Method):
        raise suggest(method, list(get_args(Method)), "method of risk control")
    if not 0 < epsilon < BOUNDS[loss]:
        raise MaqeeError(f"Epsilon, the tolerated {loss} gap, must lie between 0 and {BOUNDS[loss]:g}, not {epsilon}.")
    if delta is None and method in ("ucb", "ltt"):
        raise MaqeeError(f"Method {method} needs delta, the tolerated probability of failure, for example 0.1.")
    if delta is not None and not 0 < delta < 1:
        raise MaqeeError(f"Delta, the tolerated probability of failure, must lie between 0 and 1, not {delta}.")
    return 1.0 if delta is None else float(delta)
