"""Where utilization turns the order of layers round: Theorem 3, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maqee.errors import MaqeeError


@dataclass(frozen=True)
class RankInversions:
    """Theorem 3: pairs of layers with S_i > S_j but u_i S_i < u_j S_j, and whether they matter.

    The first half of the theorem (the rankings disagree) is a definition. The second half, as printed, says that static
    allocation *can* be suboptimal; its proof gives exactly one bit to one of the two layers. With all layers to choose
    from, an inversion of two layers that are both chosen or both not changes nothing. So the shortfall is measured as
    well: for every budget of m layers that get one more bit, the weighted sensitivity that the m statically best layers
    miss against the m best.

    The theorem needs two assumptions that should be known: S_l >= 0 (required here), and bits that cost the same in
    every layer. That holds for a budget of the sum of bits, the one the method uses; if a bit is charged what it costs
    on average (Definition 1), u_l multiplies cost as well as benefit, and the ranking by benefit per cost is the static
    one.

    Attributes:
        pairs: (i, j) block numbers from 1. As utilization only falls with depth, i is always the deeper of the two.
        share: pairs by number of all pairs.
        shortfall: for m = 1 to L, (best - static) / best weighted sensitivity, 0 where best is 0.
    """

    pairs: tuple[tuple[int, int], ...]
    share: float
    shortfall: tuple[float, ...]


def rank_inversions(sensitivity: ArrayLike, utilization: ArrayLike) -> RankInversions:
    """Compare the static with the utilization-weighted ranking: S (L,) and u (L,)."""
    static, reach = np.asarray(sensitivity, dtype=np.float64), np.asarray(utilization, dtype=np.float64)
    if static.ndim != 1 or static.size == 0 or static.shape != reach.shape:
        raise MaqeeError(f"Give one sensitivity and one utilization a block, not {static.shape} and {reach.shape}.")
    if not np.isfinite(static).all() or (static < 0).any():
        raise MaqeeError("Sensitivities must be numbers from 0 up: Theorem 3 does not cover negative ones.")
    if not ((reach >= 0) & (reach <= 1)).all():
        raise MaqeeError("Utilizations must be probabilities from 0 to 1.")
    weighted = reach * static
    turned = (static[:, None] > static[None, :]) & (weighted[:, None] < weighted[None, :])
    best = np.cumsum(np.sort(weighted)[::-1])
    chosen = np.cumsum(weighted[_order(static)])
    blocks = static.size
    return RankInversions(
        pairs=tuple((int(i) + 1, int(j) + 1) for i, j in np.argwhere(turned)),
        share=float(turned.sum() / max(blocks * (blocks - 1) // 2, 1)),
        shortfall=tuple(_relative(best, chosen)),
    )


def _order(static: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.argsort(-static, kind="stable")  # the shallower of equals first


def _relative(best: NDArray[np.float64], chosen: NDArray[np.float64]) -> Sequence[float]:
    missed = np.maximum(best - chosen, 0.0)
    return [float(value) for value in np.divide(missed, best, out=np.zeros_like(best), where=best > 0)]
