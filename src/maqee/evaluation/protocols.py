"""The paper's two protocols, for any model with a calibration pass: a plan, a baseline, full precision.

*Standard configuration*: the model with its own thresholds. *Controlled performance*: all of these moved by one offset,
to the cheapest policy that reaches a target on calibration images, or N/A where none does. Test images choose nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from maqee.apq import Trace, controlled_performance
from maqee.errors import MaqeeError
from maqee.evaluation.results import PolicyFigures
from maqee.policy import Policy

STANDARD = 0.8  # of every exit, where a method has no thresholds of its own


@dataclass(frozen=True)
class Protocols:
    """Policies of both protocols.

    Attributes:
        standard: the model's own thresholds.
        controlled: those moved by one offset; None if no offset reaches the target.
        target: on calibration images.
    """

    standard: Policy
    controlled: Policy | None
    target: float

    @property
    def policies(self) -> list[Policy]:
        """Those to be measured, in one pass over the test images."""
        return [self.standard, *([] if self.controlled is None else [self.controlled])]

    def sort_out(self, rows: Sequence[PolicyFigures]) -> tuple[PolicyFigures, PolicyFigures | None]:
        """The figures of both, from those of `policies`."""
        if self.controlled is None:
            return rows[0], None
        return rows[0], replace(rows[1], calibration_target=round(self.target, 6))


def both_protocols(trace: Trace, thresholds: Sequence[float], target: float) -> Protocols:
    """Choose on calibration images.

    Args:
        trace: their pass.
        thresholds: the model's own.
        target: the metric that controlled performance has to reach.
    """
    if not 0 <= target <= 1:
        raise MaqeeError(f"controlled: {target} must be from 0 to 1.")
    moved = controlled_performance(trace, thresholds, target)
    return Protocols(Policy(tuple(thresholds)), None if moved is None else Policy(moved.thresholds), target)
