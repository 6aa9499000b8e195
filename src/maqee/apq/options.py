"""Every choice the paper leaves open, by name: the defaults are our reading, the alternatives the literal text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maqee.apq._stored import STRICT
from maqee.errors import MaqeeError


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How risks are measured and how the search goes.

    Attributes:
        alpha: weight of decision risks (PGR, BSR) against representation risks (QID, inverse SQNR).
        lambda_outer: price of cost when thresholds are chosen.
        lambda_inner: price of cost when bits are moved.
        tau: margin of BSR; "estimated" takes, for each exit, the 90th percentile of how far quantization moved rho.
        use_pgr: switch for ablations; likewise use_bsr, use_qid and use_sqnr.
        pgr_samples: PGR of an exit over the samples "leaving" there. Over "all", as printed, PGR does not depend on
            thresholds, and the best policy is to leave at once.
        pgr_reference: the full-depth loss that exits are compared with. The "float" model's makes allocations
            comparable; against the "quantized" model's, an allocation gains by spoiling the last blocks. Thresholds
            do not depend on it.
        normalise: "fixed" scales measured once, before the search; "none" adds the terms up as they are.
        cost_scale: cost as a share of "full-depth" cost at the first bits; "none" adds BOPs as they are.
        outer_sum: sum risks over "exits" (Algorithm 1) or over all "blocks" (its equation).
        headless: a block without a head takes PGR and BSR of the "next" exit, or "zero".
        bsr_confidence: BSR looks at the confidence of the "float" model (Theorem 1) or of the "quantized" one.
        bsr_samples: "all" samples near a threshold count, or only those "reaching" the exit (as a share of all).
        bit_min: fewest weight bits of a block.
        bit_max: most weight bits of a block.
        swap: "two-sided" weighs what the receiver gains against what the donor loses; "literal" takes the bit where
            one more would help least, and always swaps.
        first_move: begin with a "swap", or with the "exact" allocation for the risks at hand.
        spread: the risk a bit changes is that of its "block", or of the whole "path" behind it.
        refresh: run the quantized model again after "every-swap", or only "once".
        accept: keep a swap that makes the objective "better", or keep it "always".
        candidates: thresholds on the "grid" of hundredths, or "every" value that makes a difference.
        last_search: the search that ends it all: "coordinate" or "exact" (at most four or five exits).
        start: threshold of every exit to begin with.
        reach: how far a threshold may move after a swap.
        max_swaps: swaps to try; twice the number of blocks when left out.
        recovery_steps: training steps after each swap.
    """

    __pydantic_config__ = STRICT

    alpha: float = 0.75
    lambda_outer: float = 0.5
    lambda_inner: float = 0.5
    tau: float | Literal["estimated"] = 0.05
    use_pgr: bool = True
    use_bsr: bool = True
    use_qid: bool = True
    use_sqnr: bool = True
    pgr_samples: Literal["leaving", "all"] = "leaving"
    pgr_reference: Literal["float", "quantized"] = "float"
    normalise: Literal["fixed", "none"] = "fixed"
    cost_scale: Literal["full-depth", "none"] = "full-depth"
    outer_sum: Literal["exits", "blocks"] = "exits"
    headless: Literal["next", "zero"] = "next"
    bsr_confidence: Literal["float", "quantized"] = "float"
    bsr_samples: Literal["all", "reaching"] = "all"
    bit_min: int = 3
    bit_max: int = 6
    swap: Literal["two-sided", "literal"] = "two-sided"
    first_move: Literal["swap", "exact"] = "swap"
    spread: Literal["block", "path"] = "block"
    refresh: Literal["every-swap", "once"] = "every-swap"
    accept: Literal["better", "always"] = "better"
    candidates: Literal["grid", "every"] = "grid"
    last_search: Literal["coordinate", "exact"] = "coordinate"
    start: float = 0.8
    reach: float = 0.10
    max_swaps: int | None = None
    recovery_steps: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise MaqeeError(f"alpha: {self.alpha} must be from 0 to 1.")
        for name in ("lambda_outer", "lambda_inner", "start", "reach", "recovery_steps"):
            if not getattr(self, name) >= 0:
                raise MaqeeError(f"{name}: {getattr(self, name)} must be at least 0.")
        if self.tau != "estimated" and not 0 <= self.tau < 0.5:
            raise MaqeeError(f"tau: {self.tau} must be from 0 to below 0.5, or 'estimated'.")
        if not 1 <= self.bit_min <= self.bit_max <= 32:
            raise MaqeeError(f"bit_min and bit_max: {self.bit_min} and {self.bit_max} must ascend within 1..32.")
        if self.max_swaps is not None and self.max_swaps < 0:
            raise MaqeeError(f"max_swaps: {self.max_swaps} must be at least 0.")
