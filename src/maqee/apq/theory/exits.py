"""How quantization moves exit decisions: Theorem 1, its corollary about stopping depths, and the table of flips.

Notation of the paper: rho and rho~ are the float and quantized confidences, phi the thresholds, Delta = rho - phi the
margin, xi = rho~ - rho the perturbation, e = 1[rho >= phi] and e~ = 1[rho~ >= phi] the decisions.

All inequalities here are about sets of samples, so they hold for the empirical measure exactly, not only on average.
They even hold in floating point: e != e~ puts phi between rho and rho~, and rounding a difference is monotone, so the
computed |Delta| is at most the computed |xi|. A violation therefore means that arrays were mixed up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maqee.apq.control.family import Array
from maqee.policy import take_exits


@dataclass(frozen=True)
class MisExits:
    """Theorem 1 at every exit: Pr(e~ != e) <= Pr(|Delta| <= tau) + Pr(|xi| > tau), for each tau.

    Where this departs from the print: there the tail q(tau, b_l) is a function of the bits of block l alone and grows
    as they shrink. The perturbation depends on the bits of all blocks up to l and of the head, and need not be monotone
    in any; here the tail is the measured one under the whole allocation, the smallest q the theorem allows. The theorem
    is about decisions on all samples, also on those that left earlier; see `StoppingDepth` for those that matter.

    Attributes:
        taus: tolerances, (T,).
        measured: share of samples whose decision differs, for each exit, (E,).
        crossing: Pr(|Delta| <= |xi|), the tau-free bound from which the theorem is derived, (E,).
        boundary_mass: Pr(|Delta| <= tau), the risk BSR, (E, T).
        tail: Pr(|xi| > tau), (E, T).
        bound: their sum, (E, T); above 1 it says nothing.
    """

    taus: tuple[float, ...]
    measured: tuple[float, ...]
    crossing: tuple[float, ...]
    boundary_mass: tuple[tuple[float, ...], ...]
    tail: tuple[tuple[float, ...], ...]
    bound: tuple[tuple[float, ...], ...]

    @property
    def holds(self) -> bool:
        """Whether no measured share is above its bounds."""
        limits = np.concatenate([np.array(self.crossing)[:, None], np.array(self.bound)], axis=1)
        return bool((np.array(self.measured)[:, None] <= limits).all())


def mis_exits(float_confidence: Array, quantized_confidence: Array, thresholds: Array, taus: Array) -> MisExits:
    """Measure Theorem 1: (n, E), (n, E), (E,), (T,)."""
    n = float_confidence.shape[0]
    margin = np.abs(float_confidence - thresholds)  # (n, E)
    shift = np.abs(quantized_confidence - float_confidence)
    differs = (quantized_confidence >= thresholds) != (float_confidence >= thresholds)
    near = (margin[:, :, None] <= taus).sum(axis=0)  # (E, T) counts
    far = (shift[:, :, None] > taus).sum(axis=0)
    return MisExits(
        taus=tuple(taus.tolist()),
        measured=tuple((differs.sum(axis=0) / n).tolist()),
        crossing=tuple(((margin <= shift).sum(axis=0) / n).tolist()),
        boundary_mass=_rows(near / n),
        tail=_rows(far / n),
        bound=_rows((near + far) / n),  # counts are added before dividing, so that equal stays equal
    )


@dataclass(frozen=True)
class StoppingDepth:
    """Corollary of Theorem 1: how far the depth K at which samples stop moves.

    The printed sums run over all layers; a layer without an exit decides nothing, and full depth is where samples stop
    that no exit took, so the sums here run over exits. The paper says "exceed" for K and >= for the decisions; it is >=
    in both here. Beside the printed bounds there is what the proof really gives: two policies part at the first exit
    that both reach and where they decide differently, so the shares of first disagreements add up to Pr(K~ != K)
    exactly, and whoever goes on from exit e has at most L - block_e blocks to go.

    Attributes:
        float_mean: E[K] in blocks.
        quantized_mean: E[K~] in blocks.
        changed: Pr(K~ != K).
        changed_bound: sum over exits of Pr(e~ != e).
        shift_bound: (L - 1) times that, the printed bound of |E[K~] - E[K]|.
        first_disagreement: for each exit, share of samples that part there; sums to `changed`.
        tight_shift_bound: sum over exits of (L - block_e) x first disagreement.
    """

    float_mean: float
    quantized_mean: float
    changed: float
    changed_bound: float
    shift_bound: float
    first_disagreement: tuple[float, ...]
    tight_shift_bound: float

    @property
    def holds(self) -> bool:
        """Whether no measured value is above its bounds (up to the rounding of sums)."""
        shift, slack = abs(self.quantized_mean - self.float_mean), 1e-9
        return (
            self.changed <= self.changed_bound + slack
            and abs(self.changed - sum(self.first_disagreement)) <= slack
            and shift <= self.tight_shift_bound * (1 + slack) + slack
            and self.tight_shift_bound <= self.shift_bound * (1 + slack) + slack
        )


def stopping_depth(
    float_confidence: Array, quantized_confidence: Array, thresholds: Array, exit_blocks: NDArray[np.intp]
) -> StoppingDepth:
    """Measure the corollary: (n, E), (n, E), (E,), and (E + 1,) block numbers with full depth last."""
    n, exits = float_confidence.shape
    before, after = take_exits(float_confidence, thresholds), take_exits(quantized_confidence, thresholds)
    differs = (quantized_confidence >= thresholds) != (float_confidence >= thresholds)
    changed = before != after
    parted = np.bincount(np.minimum(before, after)[changed], minlength=exits + 1)[:exits]  # nobody parts at full depth
    depth = int(exit_blocks[-1])
    changed_bound = float(differs.sum() / n)
    return StoppingDepth(
        float_mean=float(exit_blocks[before].mean()),
        quantized_mean=float(exit_blocks[after].mean()),
        changed=float(changed.sum() / n),
        changed_bound=changed_bound,
        shift_bound=(depth - 1) * changed_bound,
        first_disagreement=tuple((parted / n).tolist()),
        tight_shift_bound=float((depth - exit_blocks[:-1]) @ parted / n),
    )


@dataclass(frozen=True)
class Flips:
    """Who moved where, and what it did.

    Attributes:
        matrix: counts, row = exit under float confidences, column = under quantized ones, full depth last.
        premature: share of samples that leave earlier because of quantization (below the diagonal).
        delayed: share that leaves later.
        premature_loss: what premature samples add to the mean loss, E[(loss_K~ - loss_K) 1(K~ < K)], with the quantized
            model's losses at both exits, so that only the decision is compared; None without losses.
        delayed_loss: what delayed samples add (often negative: they pay with depth instead).
        premature_blocks: blocks a mean sample saves by premature exits, at most 0.
        delayed_blocks: blocks a mean sample loses by delayed exits; the two sum to E[K~] - E[K].
    """

    matrix: tuple[tuple[int, ...], ...]
    premature: float
    delayed: float
    premature_loss: float | None
    delayed_loss: float | None
    premature_blocks: float
    delayed_blocks: float


def flips(
    float_confidence: Array,
    quantized_confidence: Array,
    thresholds: Array,
    exit_blocks: NDArray[np.intp],
    losses: Array | None = None,
) -> Flips:
    """Count the flips: (n, E), (n, E), (E,), (E + 1,), and (n, E + 1) losses of the quantized model."""
    exits = float_confidence.shape[1]
    before, after = take_exits(float_confidence, thresholds), take_exits(quantized_confidence, thresholds)
    matrix = np.bincount(before * (exits + 1) + after, minlength=(exits + 1) ** 2).reshape(exits + 1, exits + 1)
    early, late = after < before, after > before
    blocks = exit_blocks[after] - exit_blocks[before]
    change = None
    if losses is not None:
        change = np.take_along_axis(losses, np.stack([after, before], axis=1), axis=1) @ np.array([1.0, -1.0])  # (n,)
    return Flips(
        matrix=tuple(tuple(row) for row in matrix.tolist()),
        premature=float(early.mean()),
        delayed=float(late.mean()),
        premature_loss=None if change is None else float((change * early).mean()),
        delayed_loss=None if change is None else float((change * late).mean()),
        premature_blocks=float((blocks * early).mean()),
        delayed_blocks=float((blocks * late).mean()),
    )


def _rows(table: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())
