"""What a plan may cost, or must achieve."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from maqee.apq._stored import STRICT
from maqee.apq.options import SearchOptions
from maqee.apq.records import Figures
from maqee.errors import MaqeeError
from maqee.widths import BitPair

USUAL_DROP = 0.01
USUAL_AVERAGE = 4.0
_WIDTHS = r"[Ww]([2-8])[Aa]([2-8])"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The demands on a plan.

    Errors begin with the name of the field and a colon, so that a command line can put its own name there.

    Attributes:
        average_bits: mean weight bits of the blocks, where only these are chosen; swaps keep their sum.
        max_bops: the most expected BOPs of a sample. The objective is then the metric, or the paper's.
        max_ms: the same in milliseconds, where measured time is the cost.
        min_metric: the least mean of the task metric (accuracy), 0..1. The objective is then the expected cost alone.
        max_drop: the same, said as the most that the metric may lie below that of a model at full depth.
        like: uniform widths such as "W4A4": as many BOPs as these cost with their own best policy, at max_drop below
            their own full depth (0.01 when left out). The objective is then the metric.
        target_on: where the metric must be reached: "expected" on samples that did not choose the thresholds (by
            cross-validation), or on the "calibration" samples that chose them, which look better than they are.
        drop_from: the model that max_drop counts from: the full-precision one ("float"), or what the "quantized" one
            can reach.
    """

    __pydantic_config__ = STRICT

    average_bits: float = USUAL_AVERAGE
    max_bops: float | None = None
    max_ms: float | None = None
    min_metric: float | None = None
    max_drop: float | None = None
    like: str | None = None
    target_on: Literal["expected", "calibration"] = "expected"
    drop_from: Literal["float", "quantized"] = "float"

    def __post_init__(self) -> None:
        for name in ("average_bits", "max_bops", "max_ms", "min_metric", "max_drop"):
            if isinstance(value := getattr(self, name), int):  # or a state that was read back would differ
                object.__setattr__(self, name, float(value))
        asked = ("max_bops", "max_ms", "min_metric", "max_drop", "like")
        given = [name for name in asked if getattr(self, name) is not None]
        if len(given) > 1 and set(given) != {"max_drop", "like"}:
            raise MaqeeError(f"{' and '.join(given)}: give one of them; the search gets the best of the other.")
        for name in ("max_bops", "max_ms"):
            if (most := getattr(self, name)) is not None and not 0 < most < math.inf:
                raise MaqeeError(f"{name}: {most} must be a number above 0.")
        for name, share in (("min_metric", self.min_metric), ("max_drop", self.max_drop)):
            if share is not None and not 0 <= share <= 1:
                raise MaqeeError(f"{name}: {share} must be from 0 to 1.")
        if self.like is not None and not re.fullmatch(_WIDTHS, self.like):
            raise MaqeeError(f"like: {self.like!r} must be uniform widths such as W4A4.")

    @property
    def asks_for_metric(self) -> bool:
        """Whether a metric must be reached, so that the objective is the expected cost."""
        return self.like is None and (self.min_metric is not None or self.max_drop is not None)

    @property
    def asks_for_nothing(self) -> bool:
        """Whether neither a metric nor a cost is asked for."""
        return self.max_cost is None and self.like is None and not self.asks_for_metric

    @property
    def max_cost(self) -> float | None:
        """The most expected cost of a sample, in BOPs or milliseconds."""
        return self.max_bops if self.max_ms is None else self.max_ms

    @property
    def asked_cost(self) -> str:
        """The demand on the cost in the user's words, for messages."""
        return f"max_bops: {self.max_bops:.4g} BOPs" if self.max_ms is None else f"max_ms: {self.max_ms:.4g} ms"

    @property
    def like_pair(self) -> BitPair | None:
        """The uniform widths to cost no more than."""
        match = re.fullmatch(_WIDTHS, self.like) if self.like is not None else None
        return (int(match[1]), int(match[2])) if match else None

    def by_default(self) -> Budget:
        """What is asked where nothing was: at most a point below what the quantized model can reach."""
        return replace(self, max_drop=USUAL_DROP, drop_from="quantized")

    def or_usual(self, options: SearchOptions) -> Budget:
        """What a search looks for: these demands, or the usual one where nothing is asked and J is not the aim."""
        return self.by_default() if self.asks_for_nothing and options.objective == "direct" else self

    def check_widths(self, depth: int, options: SearchOptions) -> None:
        """Complain about demands that do not go with the widths to choose from, or with what is the cost."""
        self.check_unit(timed=options.exit_ms is not None)
        if options.bits == "weights":
            self.total_bits(depth, options)
        if options.bits == "weights" and self.like is not None:
            raise MaqeeError("like: the cost of uniform widths can be asked for where both widths are chosen (bits).")
        if self.like_pair is not None:
            (weight, activation), low, high = self.like_pair, options.bit_min, options.bit_max
            if not low <= weight <= high or not options.act_min <= activation <= options.act_max:
                raise MaqeeError(
                    f"like: {self.like} is not among the widths to choose from, {low} to {high} bits of weights and "
                    f"{options.act_min} to {options.act_max} of activations: widen these."
                )
        if options.bits == "both" and self.average_bits != USUAL_AVERAGE:
            raise MaqeeError(
                f"average_bits: {self.average_bits:g} weight bits on average are kept only where weights alone are "
                "chosen (bits); ask for a cost instead (max_bops)."
            )

    def check_unit(self, timed: bool) -> None:
        """Complain about BOPs where measured time is the cost, and about milliseconds where it is not."""
        if self.max_ms is not None and not timed:
            raise MaqeeError("max_ms: the cost is BOPs here, since no measured times were given (cost): ask for these.")
        if timed and (self.max_bops is not None or self.like is not None):
            name = "max_bops" if self.like is None else "like"
            raise MaqeeError(f"{name}: measured time is the cost here: ask for milliseconds (max_ms).")

    def needed_metric(self, float_metric: float, quantized_metric: float | None = None) -> float | None:
        """The metric that a policy must reach; None if none is asked for.

        Args:
            float_metric: of the full-precision model at full depth.
            quantized_metric: that the quantized model can reach, for a drop that is counted from there.
        """
        if self.max_drop is None:
            return self.min_metric
        if self.drop_from == "float":
            return max(0.0, float_metric - self.max_drop)
        if quantized_metric is None:
            raise MaqeeError(
                "drop_from: the drop is counted from what the quantized model can reach: give quantized_metric too."
            )
        return max(0.0, quantized_metric - self.max_drop)

    def resolved(self, float_metric: float, quantized_metric: float | None = None) -> Budget:
        """The same demands with a drop said as the metric that it comes to, so that it stays where bits change."""
        if self.max_drop is None:
            return self
        return replace(self, min_metric=self.needed_metric(float_metric, quantized_metric), max_drop=None)

    @property
    def asked_metric(self) -> str:
        """The demand on the metric in the user's words, for messages."""
        if self.max_drop is None:
            return f"min_metric: {self.min_metric}"
        below = " below what the quantized model can reach" if self.drop_from == "quantized" else ""
        return f"max_drop: {self.max_drop}{below}"

    def total_bits(self, depth: int, options: SearchOptions) -> int:
        """The sum of the blocks' bits."""
        low, high = options.bit_min, options.bit_max
        if not low <= self.average_bits <= high:
            raise MaqeeError(
                f"average_bits: {self.average_bits} cannot be met with {low} to {high} bits a block: the nearest that "
                f"can is {high if self.average_bits > high else low}."
            )
        return int(self.average_bits * depth + 1e-9)

    def check_met(self, excess: float, figures: Figures) -> None:
        """Complain at the end if the search found nothing within the budget, and say what is nearest."""
        if excess <= 0:
            return
        bits = f"at {figures.average_bits:g} bits on average"
        if self.max_cost is not None:
            raise MaqeeError(f"{self.asked_cost} cannot be met {bits}: the nearest found is {figures.cost:.4g}.")
        if self.max_drop is not None:
            nearest = self.max_drop + excess
        elif self.min_metric is not None and self.target_on == "expected":
            nearest = self.min_metric - excess  # not what the figures say: they are of samples that chose
        else:
            nearest = figures.metric
        where = ", expected of new images" if self.target_on == "expected" else ""
        raise MaqeeError(
            f"{self.asked_metric} cannot be met {bits}: the nearest found is {nearest:.4f}{where}; "
            "allow more bits or recovery."
        )
