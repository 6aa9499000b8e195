"""Every choice the paper leaves open, by name: the defaults are our reading, the alternatives the literal text."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from maqee.apq._stored import STRICT
from maqee.apq.timed_pairs import TimedPair
from maqee.errors import MaqeeError
from maqee.policy import NEVER

ERROR_PASSES = 20.0


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How risks are measured and how the search goes.

    Errors begin with the name of the field and a colon, so that a command line can put its own name there.

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
        bsr_scale: BSR as it is, a share of the samples ("none"), or over a "fixed" scale measured once as for the other
            terms: its largest value at any exit and candidate threshold.
        normalise: "fixed" scales measured once, before the search; "none" adds the terms up as they are.
        cost_scale: cost as a share of "full-depth" cost at the first bits; "none" adds BOPs as they are.
        outer_sum: sum risks over "exits" (Algorithm 1) or over all "blocks" (its equation).
        headless: a block without a head takes PGR and BSR of the "next" exit, or "zero".
        bsr_confidence: BSR looks at the confidence of the "float" model (Theorem 1) or of the "quantized" one.
        bsr_samples: "all" samples near a threshold count, or only those "reaching" the exit (as a share of all).
        bits: what is chosen: the widths of weights and activations ("both"), or the "weights" of whole blocks with a
            fixed average, as in the paper.
        grain: a pair of widths for each "layer" (qkv, attention products, projection, both layers of the MLP), or one
            for each "block". Weights alone are always chosen by block.
        search_bits: choose widths of "blocks", of "blocks+heads", or of "all" (patch embedding and classifier too).
            Heads cost little, and four bits in them cost early exits several points.
        signal: the error by which widths are judged: of the "logits" of the exits behind a unit, as a share of their
            own size; or their "divergence" from those of the full-precision model.
        prices: a bit costs as often as its block is executed under the "policy"; with "full-depth", bits are chosen
            as if nobody left early.
        before_training: choose bits for a network that is trained afterwards, where both widths are chosen. Training
            brings back most of what few weight bits cost: their errors count a tenth, and allocations are judged by
            passes with the most weight bits.
        error_passes: calibration passes that measuring the errors of widths may take, where both widths are chosen; it
            looks at as many images as that allows.
        bit_min: fewest weight bits.
        bit_max: most weight bits.
        act_min: fewest activation bits, where these are chosen.
        act_max: most activation bits.
        swap: "two-sided" weighs what the receiver gains against what the donor loses; "literal" takes the bit where
            one more would help least, and always swaps.
        first_move: begin with a "swap", or with the "exact" allocation for the risks at hand.
        spread: the risk a bit changes is that of its "block", or of the whole "path" behind it.
        refresh: run the quantized model again after "every-swap", or only "once".
        accept: keep a swap that makes the objective "better", or keep it "always".
        candidates: thresholds among 100 "quantiles" of the confidences seen at each exit, on the "grid" of hundredths,
            or "every" value that makes a difference.
        objective: "direct" is what was asked for: the least cost at a metric, or the best metric within a cost. "paper"
            is J, within the cost if one is given. Both are the least cost where the budget asks for a metric, and J
            where it asks for nothing.
        scores: what an answer counts where thresholds are chosen: "smoothed", the probability that it is right given
            the confidences of its image; or "counted", whether it was. Where a metric must be reached on the very
            samples that choose, answers are counted. J has losses instead.
        last_search: the search that ends it all: "coordinate" or "exact" (at most four or five exits).
        start: threshold of every exit to begin with.
        reach: how far a threshold may move after a swap: a share of the quantiles, or a difference in confidence.
        frontier: keep the best plan for each of a ladder of targets too, where both widths are chosen.
        max_swaps: moves of bits to try after the first allocations; left out, half as many as there are blocks, or
            twice as many as blocks where only weights are chosen.
        recovery_steps: training steps after each swap, where only weights are chosen.
        exit_ms: milliseconds of a sample that leaves at each exit and at full depth, as measured (`RoadTimes`). They
            are then the cost, in place of bit operations, and the most bits are taken, because fewer are no faster.
        head_ms: milliseconds that a sample saves by passing each exit where it is closed, as measured with exit_ms.
        timed_on: what these milliseconds were measured on.
        timed_pairs: where widths decide what is fast: the pairs to try for all blocks, each with its own times, the
            fastest first, whose times exit_ms is too.
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
    bsr_scale: Literal["none", "fixed"] = "none"
    normalise: Literal["fixed", "none"] = "fixed"
    cost_scale: Literal["full-depth", "none"] = "full-depth"
    outer_sum: Literal["exits", "blocks"] = "exits"
    headless: Literal["next", "zero"] = "next"
    bsr_confidence: Literal["float", "quantized"] = "float"
    bsr_samples: Literal["all", "reaching"] = "all"
    bits: Literal["both", "weights"] = "both"
    grain: Literal["layer", "block"] = "layer"
    search_bits: Literal["blocks", "blocks+heads", "all"] = "blocks+heads"
    signal: Literal["logits", "divergence"] = "logits"
    prices: Literal["policy", "full-depth"] = "policy"
    before_training: bool = False
    error_passes: float = ERROR_PASSES
    bit_min: int = 3
    bit_max: int = 6
    act_min: int = 3
    act_max: int = 8
    swap: Literal["two-sided", "literal"] = "two-sided"
    first_move: Literal["swap", "exact"] = "swap"
    spread: Literal["block", "path"] = "block"
    refresh: Literal["every-swap", "once"] = "every-swap"
    accept: Literal["better", "always"] = "better"
    candidates: Literal["quantiles", "grid", "every"] = "quantiles"
    objective: Literal["direct", "paper"] = "direct"
    scores: Literal["smoothed", "counted"] = "smoothed"
    last_search: Literal["coordinate", "exact"] = "coordinate"
    start: float = 0.8
    reach: float = 0.10
    frontier: bool = False
    max_swaps: int | None = None
    recovery_steps: int = 0
    exit_ms: tuple[float, ...] | None = None
    head_ms: tuple[float, ...] | None = None
    timed_on: str = ""
    timed_pairs: tuple[TimedPair, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise MaqeeError(f"alpha: {self.alpha} must be from 0 to 1.")
        for name in ("lambda_outer", "lambda_inner", "error_passes", "reach", "recovery_steps", "max_swaps"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise MaqeeError(f"{name}: {value} must be a number from 0 up.")
        if not 0 <= self.start <= 1 and self.start != NEVER:
            raise MaqeeError(f"start: {self.start} must be from 0 to 1, or {NEVER} for never.")
        if self.tau != "estimated" and not 0 <= self.tau < 0.5:
            raise MaqeeError(f"tau: {self.tau} must be from 0 to below 0.5, or 'estimated'.")
        if not 1 <= self.bit_min <= self.bit_max <= 32:
            raise MaqeeError(f"bit_min and bit_max: {self.bit_min} and {self.bit_max} must ascend within 1..32.")
        if not 1 <= self.act_min <= self.act_max <= 32:
            raise MaqeeError(f"act_min and act_max: {self.act_min} and {self.act_max} must ascend within 1..32.")
        if self.bits == "weights" and self.frontier:
            raise MaqeeError("frontier: plans for a ladder of targets come only where both widths are chosen (bits).")
        if self.before_training and (self.bits == "weights" or self.frontier or self.exit_ms is not None):
            raise MaqeeError(
                "before_training: it is for both widths and one plan within a number of bit operations or above an "
                "accuracy: leave out weights alone (bits), the frontier and measured time."
            )
        check_head_ms(self.head_ms, self.exit_ms)
        if self.exit_ms is not None and self.bits == "weights":
            raise MaqeeError("bits: where measured time is the cost, bits are free: choose both, or leave cost out.")
        if self.timed_pairs and self.exit_ms != self.timed_pairs[0].exit_ms:
            raise MaqeeError("timed_pairs: exit_ms must be that of the first pair.")
        for pair in self.timed_pairs:
            weight, activation = pair.widths
            if not self.bit_min <= weight <= self.bit_max or not self.act_min <= activation <= self.act_max:
                raise MaqeeError(f"timed_pairs: {pair.bits} is not within the ranges of widths.")
        if self.bits == "both" and self.recovery_steps:
            raise MaqeeError(
                "recovery_steps: training after every change of bits is only there where weights alone are chosen "
                "(bits); train at the end instead."
            )

    @classmethod
    def for_solver(
        cls, solver: str, *, lambda_outer: float = 0.5, recovery_steps: int = 0, max_swaps: int | None = None
    ) -> SearchOptions:
        """The options behind the name of a solver.

        Args:
            solver: "coordinate", one threshold and one swap of bits at a time, as the paper has it; or "exact", which
                begins with the best allocation for the measured risks and ends with the best thresholds of all.
            lambda_outer: price of cost when thresholds are chosen.
            recovery_steps: training steps after every change of bits.
            max_swaps: swaps of bits to try; with 0 all blocks keep the same bits.
        """
        if solver not in ("coordinate", "exact"):
            raise MaqeeError(f"solver: {solver!r} is not one of coordinate, exact.")
        exact = solver == "exact"
        return cls(
            lambda_outer=lambda_outer,
            recovery_steps=recovery_steps,
            max_swaps=max_swaps,
            first_move="exact" if exact else "swap",
            last_search="exact" if exact else "coordinate",
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values. What came later is left out where it is not used, so that older runs can go on."""
        values = asdict(self)
        for name, unused in (("timed_pairs", ()), ("before_training", False), ("error_passes", ERROR_PASSES)):
            if values[name] == unused:
                del values[name]
        return values


def check_head_ms(head_ms: tuple[float, ...] | None, exit_ms: tuple[float, ...] | None) -> None:
    """Complain about times of heads that do not go with those of exits."""
    if head_ms is None:
        return
    if exit_ms is None or len(head_ms) != len(exit_ms) - 1:
        raise MaqeeError(f"head_ms: {len(head_ms)} times: give one for each early exit, with exit_ms beside them.")
    if any(head < 0 for head in head_ms):
        raise MaqeeError(f"head_ms: {list(head_ms)} must all be at least 0.")
