"""The paper's theorems as measurements: one diagnosis of what quantization did to an early-exit model.

The theorems are inequalities that hold sample by sample, so on recorded arrays they must hold too. What is worth
knowing is how close the two sides are, and which term is responsible; a violation is a bug in the recording.

* Theorem 1 and its corollary, and the table of flips: maqee.apq.theory.exits.
* Theorem 2: maqee.apq.theory.error.
* Theorem 3: maqee.apq.theory.ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maqee.apq.control.family import Array, as_floats
from maqee.apq.cost import utilization
from maqee.apq.theory.error import AccumulatedError, BlockErrors, accumulated_error
from maqee.apq.theory.exits import Flips, MisExits, StoppingDepth, flips, mis_exits, stopping_depth
from maqee.apq.theory.ranks import RankInversions, rank_inversions
from maqee.errors import MaqeeError
from maqee.policy import take_exits

TAUS: tuple[float, ...] = tuple(step / 200 for step in range(41))  # 0 to 0.2; the paper's 0.05 is among them


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything measured.

    Attributes:
        n: number of samples.
        thresholds: the policy diagnosed.
        exit_blocks: block of each exit, full depth last.
        utilization: u_l = Pr(K~ >= l) of each block under the quantized policy.
        mis_exits: Theorem 1.
        stopping_depth: its corollary.
        flips: who moved where.
        accumulated_error: Theorem 2 at the quantized stopping depths; None if no block errors were given.
        rank_inversions: Theorem 3; None if no sensitivities were given.
    """

    n: int
    thresholds: tuple[float, ...]
    exit_blocks: tuple[int, ...]
    utilization: tuple[float, ...]
    mis_exits: MisExits
    stopping_depth: StoppingDepth
    flips: Flips
    accumulated_error: AccumulatedError | None
    rank_inversions: RankInversions | None

    def to_json(self) -> dict[str, Any]:
        """As plain values, tuples as lists."""
        values: dict[str, Any] = _plain(asdict(self))
        return values

    def check(self) -> None:
        """Complain if an inequality is violated, which no correct recording can do."""
        held = {
            "Theorem 1 (mis-exits)": self.mis_exits.holds,
            "the corollary of Theorem 1 (stopping depths)": self.stopping_depth.holds,
            "Theorem 2 (accumulated error)": self.accumulated_error is None or self.accumulated_error.holds,
        }
        broken = [name for name, holds in held.items() if not holds]
        if broken:
            raise MaqeeError(
                f"The measurements violate {' and '.join(broken)}, which is impossible for arrays of the same samples: "
                "record confidences and block errors again, together."
            )


def diagnose(
    float_confidence: ArrayLike,
    quantized_confidence: ArrayLike,
    thresholds: Sequence[float],
    exit_blocks: Sequence[int],
    *,
    losses: ArrayLike | None = None,
    block_errors: BlockErrors | None = None,
    sensitivity: ArrayLike | None = None,
    taus: Sequence[float] = TAUS,
) -> Diagnosis:
    """Measure every theorem on one set of samples; `Diagnosis.check` then asserts the inequalities.

    Args:
        float_confidence: (n, exits), of the float early-exit model.
        quantized_confidence: (n, exits), of the quantized one on the same samples in the same order.
        thresholds: one for each exit; they are rounded to the precision that the quantized confidences have, as when
            the model really stops, so hand these over as they are.
        exit_blocks: block after which each exit sits, full depth last.
        losses: (n, exits + 1), of the quantized model.
        block_errors: of the same samples, see `maqee.apq.theory.error.measure_blocks`.
        sensitivity: static sensitivity S_l of each block, (L,).
        taus: tolerances for Theorem 1.
    """
    before, after, limits = _confidences(float_confidence, quantized_confidence, thresholds)
    n, exits = before.shape
    blocks = np.asarray(exit_blocks, dtype=np.intp)
    if blocks.shape != (exits + 1,) or blocks[0] < 1 or (np.diff(blocks) <= 0).any():
        raise MaqeeError(f"Exit blocks must be {exits} rising block numbers and the depth, not {list(exit_blocks)}.")
    grid = np.asarray(taus, dtype=np.float64)
    if grid.ndim != 1 or grid.size == 0 or not np.isfinite(grid).all() or (grid < 0).any():
        raise MaqeeError("The tolerances tau must be a list of numbers from 0 up.")
    loss = None if losses is None else np.asarray(losses, dtype=np.float64)
    if loss is not None and (loss.shape != (n, exits + 1) or not np.isfinite(loss).all()):
        raise MaqeeError(f"Losses must be numbers of shape {(n, exits + 1)} (full depth last), not of {loss.shape}.")
    depth = int(blocks[-1])
    if block_errors is not None and block_errors.local.shape != (n, depth):
        raise MaqeeError(f"Block errors must cover {n} samples and {depth} blocks, not {block_errors.local.shape}.")
    taken = take_exits(after, limits)
    reach = utilization((np.bincount(taken, minlength=exits + 1) / n).tolist(), blocks.tolist(), depth)
    return Diagnosis(
        n=n,
        thresholds=tuple(float(value) for value in thresholds),
        exit_blocks=tuple(blocks.tolist()),
        utilization=tuple(reach.tolist()),
        mis_exits=mis_exits(before, after, limits, grid),
        stopping_depth=stopping_depth(before, after, limits, blocks),
        flips=flips(before, after, limits, blocks, loss),
        accumulated_error=None if block_errors is None else accumulated_error(block_errors, blocks[taken]),
        rank_inversions=None if sensitivity is None else rank_inversions(sensitivity, np.clip(reach, 0.0, 1.0)),
    )


def _confidences(left: ArrayLike, right: ArrayLike, thresholds: Sequence[float]) -> tuple[Array, Array, Array]:
    """Both confidences, and the thresholds as they are really compared with; in float64 for the sums to come."""
    before, after = as_floats(left), as_floats(right)
    if before.ndim != 2 or 0 in before.shape or before.shape != after.shape:
        raise MaqeeError(
            f"Float and quantized confidences must both be (samples, exits), not {before.shape} and {after.shape}."
        )
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise MaqeeError("Confidences must be numbers, without NaN or infinity: look at the models' outputs.")
    limits = np.asarray(thresholds, dtype=after.dtype)
    if limits.shape != (before.shape[1],) or not np.isfinite(limits).all():
        raise MaqeeError(f"Give one threshold for each of the {before.shape[1]} exits, not {list(thresholds)}.")
    return before.astype(np.float64), after.astype(np.float64), limits.astype(np.float64)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
