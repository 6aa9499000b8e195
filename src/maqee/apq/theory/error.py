"""How quantization error grows with depth: Theorem 2, measured.

The theorem assumes E_l <= gamma_{l-1} E_{l-1} + eps_l for the error E_l = ||h~_l - h_l|| after block l, and unrolls it:
E_k <= sum_{l<=k} eps_l prod_{r=l+1..k} gamma_{r-1}. Three things are needed to make that a statement about data:

* The assumption has to hold by construction. With F_l the float block and F~_l the quantized one, the triangle
  inequality through F_l(h~_{l-1}) gives it for

      eps_l = ||F~_l(h~_{l-1}) - F_l(h~_{l-1})||     (local error, at the *quantized* input)
      gamma_{l-1} = ||F_l(h~_{l-1}) - F_l(h_{l-1})|| / E_{l-1}     (expansion of the *float* block)

  The local error at the float input together with the expansion of the float block does not: the pieces do not meet.
  The expansion of the quantized block would be unusable, since rounding is a jump and no constant gamma bounds it.
* eps and gamma are printed as constants of a layer. With averages over samples in their place the inequality is false
  (a mean of products is not the product of means); they have to be those of each sample, or the largest.
* E_0 = 0 needs an unquantized patch embedding, which is our default. Otherwise E_0 times the product of all gammas is
  added, the term that the paper's proof has before it drops it.

The theorem compares both networks after the same number of blocks. That the quantized network may stop at another depth
than the float one is not part of it: that is the corollary of Theorem 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maqee.apq.control.family import Array
from maqee.errors import MaqeeError

_SLACK = 1e-6  # relative; activations are float32, the norms of their differences are taken in float64


@dataclass(frozen=True)
class BlockErrors:
    """Error and its sources for each sample and block.

    Attributes:
        total: E_l after blocks 0 (patch embedding) to L, (n, L + 1).
        local: eps_l of blocks 1 to L, (n, L).
        expansion: gamma_{l-1}, by which block l = 1 to L stretches the error it is given, (n, L).
    """

    total: Array
    local: Array
    expansion: Array

    def __post_init__(self) -> None:
        arrays = (self.total, self.local, self.expansion)
        n, blocks = self.local.shape if self.local.ndim == 2 else (0, 0)
        if n == 0 or self.expansion.shape != (n, blocks) or self.total.shape != (n, blocks + 1):
            raise MaqeeError(
                "Block errors must be (n, L + 1) total, (n, L) local and (n, L) expansion, "
                f"not {self.total.shape}, {self.local.shape} and {self.expansion.shape}."
            )
        if not all(np.isfinite(array).all() and (array >= 0).all() for array in arrays):
            raise MaqeeError("Block errors are norms and their ratios: they must be finite and at least 0.")


def measure_expansion(
    float_input: ArrayLike, perturbed_input: ArrayLike, float_output: ArrayLike, perturbed_output: ArrayLike
) -> Array:
    """Gamma of one block for each sample: distance of outputs by distance of inputs, (n, ...) each, to (n,).

    Both outputs come from the same float block. Equal inputs have no ratio; it is given as 0.
    """
    before, after = _distance(perturbed_input, float_input), _distance(perturbed_output, float_output)
    return np.divide(after, before, out=np.zeros_like(after), where=before > 0)


def measure_blocks(
    float_states: Sequence[ArrayLike], quantized_states: Sequence[ArrayLike], crossed_states: Sequence[ArrayLike]
) -> BlockErrors:
    """Measure E, eps and gamma of every block from hidden states; block shapes may differ (Swin).

    Args:
        float_states: h_0 to h_L, each (n, ...).
        quantized_states: h~_0 to h~_L of the quantized network.
        crossed_states: F_l(h~_{l-1}) for l = 1 to L: float blocks fed with quantized states.
    """
    blocks = len(crossed_states)
    if len(float_states) != blocks + 1 or len(quantized_states) != blocks + 1:
        raise MaqeeError(
            f"For {blocks} crossed states give {blocks + 1} float and quantized states (the input of block 1 first), "
            f"not {len(float_states)} and {len(quantized_states)}."
        )
    total = [_distance(quantized, exact) for quantized, exact in zip(quantized_states, float_states, strict=True)]
    local, expansion = [], []
    for block, crossed in enumerate(crossed_states):
        exact, quantized = float_states[block : block + 2], quantized_states[block : block + 2]
        expansion.append(measure_expansion(exact[0], quantized[0], exact[1], crossed))
        # Equal inputs but unequal outputs (kernels that are not deterministic): no gamma explains it, so it is local.
        unexplained = np.where(total[block] > 0, 0.0, _distance(crossed, exact[1]))
        local.append(_distance(quantized[1], crossed) + unexplained)
    return BlockErrors(np.stack(total, axis=1), np.stack(local, axis=1), np.stack(expansion, axis=1))


def accumulated_bound(local: ArrayLike, expansion: ArrayLike, input_error: ArrayLike = 0.0) -> Array:
    """Right side of Theorem 2 for every depth k: (..., L) and (..., L) to (..., L), by the recurrence it unrolls.

    Args:
        local: eps_l of blocks 1 to L.
        expansion: gamma_{l-1} of blocks 1 to L; the first stretches `input_error` only.
        input_error: E_0, (...).
    """
    eps, gamma = np.broadcast_arrays(np.asarray(local, dtype=np.float64), np.asarray(expansion, dtype=np.float64))
    bound = np.empty_like(eps)
    current = np.broadcast_to(np.asarray(input_error, dtype=np.float64), eps.shape[:-1])
    for block in range(eps.shape[-1]):
        current = gamma[..., block] * current + eps[..., block]
        bound[..., block] = current
    return bound


@dataclass(frozen=True)
class AccumulatedError:
    """Theorem 2 on data.

    Attributes:
        mean_error: E[E_k] after each block, (L,).
        mean_bound: mean of the bound with each sample's own eps and gamma, (L,).
        uniform_bound: the bound as printed, with the largest eps and gamma over samples as constants, (L,).
        stop_error: E[E_K], at the block where each sample stops.
        stop_bound: E[bound at K], with each sample's own eps and gamma.
        violations: number of (sample, block) pairs whose error is above their own bound; not 0 only if the arrays do
            not belong together.
    """

    mean_error: tuple[float, ...]
    mean_bound: tuple[float, ...]
    uniform_bound: tuple[float, ...]
    stop_error: float
    stop_bound: float
    violations: int

    @property
    def holds(self) -> bool:
        """Whether no sample's error is above its bound after any block."""
        return self.violations == 0


def accumulated_error(errors: BlockErrors, stop_blocks: NDArray[np.intp]) -> AccumulatedError:
    """Measure Theorem 2, given the block (1 to L) at which each sample stops, (n,)."""
    n, blocks = errors.local.shape
    if stop_blocks.shape != (n,) or stop_blocks.min() < 1 or stop_blocks.max() > blocks:
        raise MaqeeError(f"Give one block from 1 to {blocks}, at which it stops, for each of the {n} measured samples.")
    bound = accumulated_bound(errors.local, errors.expansion, errors.total[:, 0])  # (n, L)
    error = errors.total[:, 1:]
    uniform = accumulated_bound(errors.local.max(axis=0), errors.expansion.max(axis=0), errors.total[:, 0].max())
    stop = (np.arange(n), stop_blocks - 1)
    return AccumulatedError(
        mean_error=tuple(error.mean(axis=0).tolist()),
        mean_bound=tuple(bound.mean(axis=0).tolist()),
        uniform_bound=tuple(uniform.tolist()),
        stop_error=float(error[stop].mean()),
        stop_bound=float(bound[stop].mean()),
        violations=int((error > bound * (1 + _SLACK) + 1e-9).sum()),
    )


def _distance(left: ArrayLike, right: ArrayLike) -> Array:
    """Euclidean distance of each sample: (n, ...), (n, ...) to (n,)."""
    first, second = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if first.shape != second.shape or first.ndim < 2:
        raise MaqeeError(
            f"States to compare must be (samples, ...) of one shape, not {first.shape} and {second.shape}."
        )
    return np.linalg.norm((first - second).reshape(first.shape[0], -1), axis=1)
