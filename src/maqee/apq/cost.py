"""Bit operations (BOPs): MACs x weight bits x activation bits, weighted by how often a part is executed.

The paper prints only "FLOPs x B_w x B_a"; its tables are reproduced by the following convention, which is the only one
used here (docs/cost.md tells how it was found, and which printed rows do not follow it)::

    BOPs = 1024 MAC_patch + sum_l u_l (sum_j MAC_j W_j A_j + MAC_att A A) + sum_e u_e MAC_head W_h A_h
           + 1024 MAC_classifier

j goes over the linear layers of block l; in the paper all of them have the block's bits, and one A serves the whole
network. u_l is the probability that an image reaches block l. A "FLOP" of the paper is a multiply-accumulate. With
every u at 1 this is the static cost; with the u of an exit policy it is C_APQ (Definition 1). The head of an exit that
the policy closes is not run, so that e goes over the open exits only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maqee.errors import MaqeeError
from maqee.parts import Part
from maqee.policy import closed_exits
from maqee.widths import FULL, BitSettings


def utilization(exit_mass: Sequence[float], exit_blocks: Sequence[int], depth: int) -> NDArray[np.float64]:
    """u_l = Pr(K >= l) for l = 1..depth, from the share of images that leaves at each exit.

    Args:
        exit_mass: share leaving at each exit, the last one at full depth; sums to 1.
        exit_blocks: the block after which each of them ends, the last one being `depth`.
        depth: number of blocks.
    """
    mass = np.asarray(exit_mass, dtype=np.float64)
    if mass.shape != (len(exit_blocks),):
        raise MaqeeError(f"The exit mass has {mass.size} shares for {len(exit_blocks)} exits (full depth included).")
    if not np.isfinite(mass).all() or (mass < 0).any() or not np.isclose(mass.sum(), 1.0, atol=1e-6):
        raise MaqeeError(f"The exit mass {list(exit_mass)} must be shares from 0 to 1 that sum to 1.")
    ends = np.asarray(exit_blocks)
    blocks = np.arange(1, depth + 1)
    return (mass[None, :] * (ends[None, :] >= blocks[:, None])).sum(axis=1)


def closed_blocks(thresholds: ArrayLike, exit_blocks: Sequence[int]) -> tuple[int, ...]:
    """The blocks whose exit a policy closes.

    Args:
        thresholds: of every exit, (E,).
        exit_blocks: the block after which each of them sits; full depth, which is never closed, may follow.
    """
    return tuple(block for block, closed in zip(exit_blocks, closed_exits(thresholds), strict=False) if closed)


def closing_saves(heads: ArrayLike, thresholds: ArrayLike) -> NDArray[np.float64]:
    """What a sample saves by leaving at each exit and at full depth, (E + 1,): the heads of closed exits on its way.

    Args:
        heads: what the head of each exit costs, (E,).
        thresholds: of every exit, (E,).
    """
    return np.append(0.0, np.cumsum(np.where(closed_exits(thresholds), heads, 0.0)))


def part_reach(parts: Sequence[Part], reach: NDArray[np.float64], closed: Collection[int] = ()) -> NDArray[np.float64]:
    """Probability that each part is executed; block 0 (patch embedding, classifier) counts in full.

    The final classifier in full is the paper's convention: every image ends in some classifier, and the tables show it.

    Args:
        parts: what the model costs.
        reach: how often each block is executed, (L,).
        closed: blocks whose exit is closed (`closed_blocks`), so that its head is not run.
    """

    def share(part: Part) -> float:
        if part.kind == "head" and part.block in closed:
            return 0.0
        return 1.0 if part.block == 0 else float(reach[part.block - 1])

    return np.array([share(part) for part in parts])


def part_bops(parts: Sequence[Part], bits: BitSettings) -> NDArray[np.float64]:
    """BOPs of each part when it is executed."""
    widths = np.array([bits.of(part) for part in parts], dtype=np.float64)  # (parts, 2)
    return np.array([part.macs for part in parts], dtype=np.float64) * widths.prod(axis=1)


def bops(
    parts: Sequence[Part], bits: BitSettings, reach: NDArray[np.float64] | None = None, closed: Collection[int] = ()
) -> float:
    """Expected BOPs of one image: C_APQ under the utilization `reach`, the static cost without it."""
    costs = part_bops(parts, bits)
    return float(costs.sum() if reach is None else costs @ part_reach(parts, reach, closed))


def total_macs(parts: Sequence[Part], reach: NDArray[np.float64] | None = None, closed: Collection[int] = ()) -> float:
    """Expected multiply-accumulates of one image."""
    macs = np.array([part.macs for part in parts], dtype=np.float64)
    return float(macs.sum() if reach is None else macs @ part_reach(parts, reach, closed))


def without_early_heads(parts: Sequence[Part], depth: int) -> list[Part]:
    """What is executed at full depth with all exits closed; a head that ends the network stays."""
    return [part for part in parts if part.kind != "head" or part.block == depth]


def full_precision_bops(parts: Sequence[Part], depth: int) -> float:
    """BOPs of the full-precision model without exits, which costs are shares of."""
    return bops(without_early_heads(parts, depth), BitSettings.uniform(*FULL, depth))
