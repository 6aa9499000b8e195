"""What a plan may cost, or must achieve."""

from __future__ import annotations

import math
from dataclasses import dataclass

from maqee.apq._stored import STRICT
from maqee.apq.options import SearchOptions
from maqee.apq.records import Figures
from maqee.errors import MaqeeError


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The demands on a plan.

    Errors begin with the name of the field and a colon, so that a command line can put its own name there.

    Attributes:
        average_bits: mean weight bits of the blocks; swaps keep their sum.
        max_bops: the most expected BOPs of a sample. The objective is as always, within this limit.
        min_metric: the least mean of the task metric (accuracy), 0..1, on calibration samples. The objective is then
            the expected cost alone.
        max_drop: the same, said as the most that the metric may lie below the full-precision model's at full depth.
    """

    __pydantic_config__ = STRICT

    average_bits: float = 4.0
    max_bops: float | None = None
    min_metric: float | None = None
    max_drop: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("max_bops", "min_metric", "max_drop") if getattr(self, name) is not None]
        if len(given) > 1:
            raise MaqeeError(f"{' and '.join(given)}: give one of them; the search gets the best of the other.")
        if self.max_bops is not None and not 0 < self.max_bops < math.inf:
            raise MaqeeError(f"max_bops: {self.max_bops} must be a number above 0.")
        for name, share in (("min_metric", self.min_metric), ("max_drop", self.max_drop)):
            if share is not None and not 0 <= share <= 1:
                raise MaqeeError(f"{name}: {share} must be from 0 to 1.")

    @property
    def asks_for_metric(self) -> bool:
        """Whether a metric must be reached, so that the objective is the expected cost."""
        return self.min_metric is not None or self.max_drop is not None

    def needed_metric(self, float_metric: float) -> float | None:
        """The metric that a policy must reach where the full-precision model has `float_metric` at full depth."""
        if self.max_drop is not None:
            return max(0.0, float_metric - self.max_drop)
        return self.min_metric

    @property
    def asked_metric(self) -> str:
        """The demand on the metric in the user's words, for messages."""
        return f"min_metric: {self.min_metric}" if self.max_drop is None else f"max_drop: {self.max_drop}"

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
        if self.max_bops is not None:
            raise MaqeeError(
                f"max_bops: {self.max_bops:.4g} BOPs cannot be met {bits}: the nearest found is {figures.bops:.4g}."
            )
        nearest = figures.metric if self.max_drop is None else self.max_drop + excess
        raise MaqeeError(
            f"{self.asked_metric} cannot be met {bits}: the nearest found is {nearest:.4f}; "
            "allow more bits or recovery."
        )
