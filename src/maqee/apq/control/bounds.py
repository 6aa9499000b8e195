"""What n samples say about a mean: the betting upper bound, and p-values of "the risk is above epsilon".

Every function works along axis 0, the samples, and on all columns (policies) at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from maqee.errors import MaqeeError

Array = NDArray[np.float64]


def betting_log_capital(losses: Array, mean: ArrayLike, delta: float, bound: float = 1.0) -> Array:
    """Largest log-capital of a gambler who bets that the mean of `losses` is below `mean`.

    With losses x_i in 0..B (Waudby-Smith and Ramdas 2024, as used for RCPS)::

        mu_i  = (1/2 + sum_{j<=i} x_j) / (i + 1)
        var_i = (1/4 + sum_{j<=i} (x_j - mu_j)^2) / (i + 1),   var_0 = 1/4
        nu_i  = min(1/B, sqrt(2 ln(1/delta) / (n var_{i-1})))
        capital after i samples = prod_{j<=i} (1 - nu_j (x_j - mean))

    If the mean really is `mean` (or more) and the samples are independent, the capital is a non-negative
    (super)martingale that starts at 1, so it reaches 1/delta with probability at most delta (Ville).

    Args:
        losses: (n, ...), in 0..bound.
        mean: the mean bet against, one number or one for each column.
        delta: error probability.
        bound: B.

    Returns:
        (...): max over i of the log-capital; it rises strictly with `mean`.
    """
    return _log_capital(losses, _bets(losses, delta, bound), mean)


def _bets(losses: Array, delta: float, bound: float) -> Array:
    n = losses.shape[0]
    count = np.arange(2, n + 2, dtype=np.float64).reshape(n, *(1,) * (losses.ndim - 1))  # i + 1
    running_mean = (0.5 + np.cumsum(losses, axis=0)) / count
    variance = (0.25 + np.cumsum(np.square(losses - running_mean), axis=0)) / count
    known = np.concatenate([np.full_like(variance[:1], 0.25), variance[:-1]])  # a bet may use the past only
    return np.minimum(1 / bound, np.sqrt(2 * np.log(1 / delta) / (n * known)))


def _log_capital(losses: Array, bets: Array, mean: ArrayLike) -> Array:
    factors = np.maximum(1 - bets * (losses - np.asarray(mean, dtype=np.float64)), 0.0)
    with np.errstate(divide="ignore"):  # ruin: log 0 = -inf, and stays there
        return np.cumsum(np.log(factors), axis=0).max(axis=0)


def betting_bound(losses: ArrayLike, delta: float, bound: float = 1.0) -> Array:
    """Upper bound U of the mean: Pr(mean > U) <= delta for independent losses in 0..bound.

    U is the mean at which `betting_log_capital` reaches ln(1/delta), and `bound` if none does. In one respect U is
    raised: it is never below the empirical mean. The bare root can be, when small losses come first (a data set sorted
    by difficulty); raising a bound keeps it valid. The order of samples matters, so shuffle data that come sorted.

    Example:
        >>> float(betting_bound(np.zeros(100), delta=0.1).round(4))
        0.0238
    """
    values = _losses(losses, bound)
    bets, target = _bets(values, delta, bound), np.log(1 / delta)
    root = _smallest(lambda mean: _log_capital(values, bets, mean) >= target, values.shape[1:], bound)
    return np.maximum(root, values.mean(axis=0))


def risk_p_value(losses: ArrayLike, epsilon: ArrayLike, bound: float = 1.0) -> Array:
    """P-value of the hypothesis "mean > epsilon": exact binomial for 0-1 losses, Hoeffding-Bentkus for others.

    Losses that are all 0 or `bound` are counts of independent events, for which the binomial is exact.
    """
    test, total, n = _test_and_total(losses, bound)
    return test(total, n, np.asarray(epsilon, dtype=np.float64) / bound)


def binomial_p_value(errors: ArrayLike, n: int, epsilon: ArrayLike) -> Array:
    """Pr(Binomial(n, epsilon) <= errors)."""
    return np.asarray(special.bdtr(np.minimum(np.asarray(errors).round(), n), n, epsilon), dtype=np.float64)


def hoeffding_bentkus_p_value(total: ArrayLike, n: int, epsilon: ArrayLike) -> Array:
    """min(exp(-n KL(min(r, eps) || eps)), e Pr(Binomial(n, eps) <= ceil(n r)), 1), for losses in 0..1 with mean r.

    The better of Hoeffding's and Bentkus' tail inequalities (Bates et al. 2021).

    Args:
        total: sum of the losses, n r (the sum and not the mean: rounding up n times a mean may be off by one).
        n: number of samples.
        epsilon: tolerated mean.
    """
    limit = np.asarray(epsilon, dtype=np.float64)
    risk = np.minimum(np.asarray(total, dtype=np.float64) / n, limit)
    divergence = _x_log_x_over_y(risk, limit) + _x_log_x_over_y(1 - risk, 1 - limit)
    bentkus = np.e * special.bdtr(np.minimum(np.ceil(total), n), n, limit)  # the binomial's distribution function
    return np.minimum(np.minimum(np.exp(-n * np.maximum(divergence, 0.0)), bentkus), 1.0)


def p_value_bound(losses: ArrayLike, delta: float, bound: float = 1.0) -> Array:
    """The smallest epsilon that `risk_p_value` rejects at level delta: an upper bound of the mean of one policy."""
    test, total, n = _test_and_total(losses, bound)
    return bound * _smallest(lambda epsilon: test(total, n, epsilon) <= delta, total.shape, 1.0)


def _test_and_total(losses: ArrayLike, bound: float) -> tuple[Callable[[ArrayLike, int, ArrayLike], Array], Array, int]:
    """Which p-value fits the losses, and the sum and number of losses scaled to 0..1."""
    values = _losses(losses, bound)
    binary = bool(((values == 0) | (values == bound)).all())  # of the whole table, not a column that looks so by chance
    test = binomial_p_value if binary else hoeffding_bentkus_p_value
    return test, np.asarray(values.sum(axis=0) / bound), values.shape[0]


def _x_log_x_over_y(x: Array, y: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > 0, x * np.log(x / y), 0.0)


def _smallest(holds: Callable[[Array], NDArray[np.bool_]], shape: tuple[int, ...], top: float) -> Array:
    """Bisect 0..top for the smallest value at which a condition that only switches on holds; `top` if it never does."""
    low, high = np.zeros(shape), np.full(shape, top)
    for _ in range(40):  # 2^-40 of the range; the upper end is returned, which is the safe side
        middle = (low + high) / 2
        enough = holds(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _losses(losses: ArrayLike, bound: float) -> Array:
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim == 0 or values.shape[0] == 0:
        raise MaqeeError("A bound of the mean loss needs at least one sample.")
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > bound:
        raise MaqeeError(f"Losses must be from 0 to {bound:g} to bound their mean: clip gaps at 0 first.")
    return values
