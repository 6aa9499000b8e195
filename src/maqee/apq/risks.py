"""The four risks of early exits under quantization, and their sum R (the paper's section on modelling risk)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maqee.apq.candidates import GRID, quantile_values
from maqee.apq.figures import exit_costs
from maqee.apq.options import SearchOptions
from maqee.apq.records import Scales
from maqee.apq.trace import Trace
from maqee.policy import take_exits

Floats = NDArray[np.float64]
EPSILON = 1e-8  # smallest range and smallest energy of an output that is divided by


def range_deviation(float_output: NDArray[np.floating], output: NDArray[np.floating]) -> Floats:
    """(range of the quantized output / range of the float output - 1)^2 of each sample: (n, ...) to (n,).

    Ranges go over all tokens and channels of one sample, never over the batch, so that a sample's figure does not
    depend on its company.
    """
    ours, theirs = _flat(output), _flat(float_output)
    width = np.maximum(theirs.max(axis=1) - theirs.min(axis=1), EPSILON)
    return ((ours.max(axis=1) - ours.min(axis=1)) / width - 1) ** 2


def noise_ratio(float_output: NDArray[np.floating], output: NDArray[np.floating]) -> Floats:
    """||h - h~||^2 / ||h||^2 of each sample: (n, ...) to (n,)."""
    ours, theirs = _flat(output), _flat(float_output)
    return ((theirs - ours) ** 2).sum(axis=1) / np.maximum((theirs**2).sum(axis=1), EPSILON)


def pgr(loss: NDArray[np.floating], reference: NDArray[np.floating], taken: NDArray[np.intp] | None = None) -> Floats:
    """Performance gap risk of every exit: mean excess of the loss there over the reference's, signed.

    Args:
        loss: (n, E + 1).
        reference: (n,) the loss at full depth.
        taken: (n,) the exit each sample takes. Given, a sample counts at its own exit only (as a share of all
            samples), so that the sum over exits is the policy's gap. Left out, every sample counts at every exit, as
            the equation is printed.
    """
    gap = np.asarray(loss, dtype=np.float64) - np.asarray(reference, dtype=np.float64)[:, None]
    if taken is not None:
        gap = np.where(taken[:, None] == np.arange(gap.shape[1]), gap, 0.0)
    return gap.sum(axis=0) / gap.shape[0]


def bsr(
    confidence: NDArray[np.floating],
    thresholds: Sequence[float],
    tau: float | Sequence[float],
    taken: NDArray[np.intp] | None = None,
) -> Floats:
    """Boundary sensitivity risk of every exit: share of the samples with |rho - phi| <= tau.

    Args:
        confidence: (n, E), of the float model by Theorem 1.
        thresholds: (E,).
        tau: one margin, or one for each exit.
        taken: (n,) given, only samples that reach an exit count there (as a share of all samples).
    """
    rho = np.asarray(confidence, dtype=np.float64)
    limits = np.asarray(thresholds, dtype=np.float64)
    near = (rho >= limits - tau) & (rho <= limits + tau)
    if taken is not None:
        near &= taken[:, None] >= np.arange(rho.shape[1])
    return near.sum(axis=0) / rho.shape[0]


def qid(trace: Trace) -> Floats:
    """Quantization-induced drift of every block: (L,)."""
    return trace.drift.astype(np.float64).sum(axis=0) / trace.samples


def inverse_sqnr(trace: Trace) -> Floats:
    """Inverse signal-to-quantization-noise ratio of every block: (L,)."""
    return trace.noise.astype(np.float64).sum(axis=0) / trace.samples


def margins(trace: Trace, tau: float | Literal["estimated"]) -> Floats:
    """Tau of every exit, (E,): the given one, or what 90 of 100 confidences move by under quantization."""
    if tau != "estimated":
        return np.full(trace.exits, float(tau))
    moved = np.abs(trace.confidence.astype(np.float64) - trace.float_confidence)[:, :-1]
    return np.minimum(np.quantile(moved, 0.9, axis=0), 0.5)  # beyond, even closed exits would seem near


def exit_of_block(
    exit_blocks: Sequence[int], depth: int, headless: Literal["next", "zero"] = "next"
) -> NDArray[np.intp]:
    """The exit whose PGR and BSR a block is charged with, (L,); -1 for none.

    The noise of a block acts on the next decision, so a block without a head answers for the next exit; with "zero"
    it answers for none. Behind the last exit there is no decision left.
    """
    blocks, ends = np.arange(1, depth + 1), np.asarray(exit_blocks[:-1], dtype=np.intp)
    found = np.searchsorted(ends, blocks)  # the first exit at or after each block
    known = found < ends.size
    if headless == "zero":
        known &= np.isin(blocks, ends)
    return np.where(known, found, -1)


def measure_scales(first: Trace, lowest: Trace, options: SearchOptions) -> Scales:
    """Scales from the pass at the first bits (loss gaps, BSR, full-depth cost) and at the fewest (QID, SQNR)."""
    tau = margins(first, options.tau)
    gaps = np.abs(first.loss.astype(np.float64) - first.loss[:, -1:])[:, :-1]
    fixed = options.normalise == "fixed"
    return Scales(
        pgr=_scale(gaps.sum(axis=0) / first.samples) if fixed else 1.0,
        qid=_scale(qid(lowest)) if fixed else 1.0,
        sqnr=_scale(inverse_sqnr(lowest)) if fixed else 1.0,
        cost=_scale(exit_costs(first)[-1:]) if options.cost_scale == "full-depth" else 1.0,
        tau=tuple(float(margin) for margin in tau),
        bsr=_scale(_most_near(first, tau, options)) if options.bsr_scale == "fixed" else 1.0,
    )


def representation_risk(drift: Floats, noise: Floats, scales: Scales, options: SearchOptions) -> Floats:
    """The second half of R: (1 - alpha) (QID + inverse SQNR), each over its scale; any shape."""
    terms = drift / scales.qid * options.use_qid + noise / scales.sqnr * options.use_sqnr
    return (1 - options.alpha) * terms


def decision_risk(gap: Floats, boundary: Floats, scales: Scales, options: SearchOptions) -> Floats:
    """The first half of R: alpha (PGR + BSR), each over its scale; any shape."""
    return options.alpha * (gap / scales.pgr * options.use_pgr + boundary / scales.bsr * options.use_bsr)


def risk_of_blocks(trace: Trace, thresholds: Sequence[float], scales: Scales, options: SearchOptions) -> Floats:
    """R_l of every block, (L,)."""
    gap, boundary = exit_risks(trace, thresholds, scales.tau, options)
    charged = exit_of_block(trace.exit_blocks, trace.depth, options.headless)
    decision = np.append(decision_risk(gap, boundary, scales, options), 0.0)[charged]  # -1 finds the zero
    return decision + representation_risk(qid(trace), inverse_sqnr(trace), scales, options)


def exit_risks(
    trace: Trace, thresholds: Sequence[float], tau: Sequence[float], options: SearchOptions
) -> tuple[Floats, Floats]:
    """PGR and BSR of every exit, (E,) each, with the samples and references that the options ask for."""
    taken = take_exits(trace.confidence[:, :-1], thresholds)
    gap = pgr(trace.loss, reference_loss(trace, options), taken if options.pgr_samples == "leaving" else None)
    reaching = taken if options.bsr_samples == "reaching" else None
    return gap[:-1], bsr(boundary_confidence(trace, options), thresholds, tau, reaching)


def boundary_confidence(trace: Trace, options: SearchOptions) -> NDArray[np.float32]:
    """The confidence that counts for BSR, (n, E): the float model's or the quantized one's."""
    return (trace.float_confidence if options.bsr_confidence == "float" else trace.confidence)[:, :-1]


def reference_loss(trace: Trace, options: SearchOptions) -> NDArray[np.float32]:
    """The full-depth loss that exits are compared with: (n,)."""
    return (trace.float_loss if options.pgr_reference == "float" else trace.loss)[:, -1]


def _most_near(trace: Trace, tau: Floats, options: SearchOptions) -> Floats:
    """The largest BSR of every exit at any threshold that is looked at: (E,)."""
    rho = np.sort(boundary_confidence(trace, options).astype(np.float64), axis=0)
    most = np.zeros(trace.exits)
    for index in range(trace.exits):
        grid = options.candidates == "grid"
        looked_at = np.array(GRID) if grid else quantile_values(trace.confidence[:, index])
        above = np.searchsorted(rho[:, index], looked_at + tau[index], side="right")
        below = np.searchsorted(rho[:, index], looked_at - tau[index], side="left")
        most[index] = (above - below).max() / trace.samples
    return most


def _scale(values: Floats) -> float:
    """The largest value, or 1 where there is nothing to divide by."""
    largest = float(np.max(values, initial=0.0))
    return largest if largest > EPSILON else 1.0


def _flat(output: NDArray[np.floating]) -> Floats:
    return np.asarray(output, dtype=np.float64).reshape(output.shape[0], -1)
