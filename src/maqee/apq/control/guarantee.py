"""A guarantee as a value, with what it promises in words: numbers without their meaning are soon misquoted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from maqee.apq._stored import STRICT, from_json
from maqee.apq.control.losses import LossName

Method = Literal["naive", "crc", "ucb", "ltt"]
_LOSS_WORDS = {"zero-one": "0-1 loss", "brier": "Brier score", "score": "1 - score of an image"}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What is known about a policy, in a form that a plan can carry.

    Attributes:
        method: naive, crc, ucb or ltt.
        loss: the loss whose gap to full depth is controlled.
        epsilon: tolerated risk, as asked for.
        delta: tolerated probability that the promise fails; None for naive and crc, which have none.
        n: number of calibration samples.
        thresholds: the chosen policy.
        never_exits: whether the chosen policy is full depth for every sample, because nothing bolder was safe.
        empirical_gap: signed mean gap of the chosen policy on the calibration samples.
        empirical_risk: mean on the calibration samples of what the method controls (signed, envelope or clipped gap).
        bound: crc: (n risk + B) / (n + 1); ucb: the betting bound; ltt: the smallest epsilon its test would have
            accepted; naive: None. Each is about the chosen policy as if it had been fixed beforehand; the promise that
            survives choosing is epsilon.
        p_value: of the chosen policy, ltt only.
        statement: the promise in words.
    """

    __pydantic_config__ = STRICT

    method: Method
    loss: LossName
    epsilon: float
    delta: float | None
    n: int
    thresholds: tuple[float, ...]
    never_exits: bool
    empirical_gap: float
    empirical_risk: float
    bound: float | None
    p_value: float | None
    statement: str

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "thresholds": list(self.thresholds)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], source: str) -> Guarantee:
        """The reverse of `to_json`; `source` names the file in errors."""
        return from_json(cls, dict(values), source)


def statement(method: str, loss: str, epsilon: float, delta: float, n: int, never: bool) -> str:
    """The promise of one method in words.

    Args:
        method: naive, crc, ucb or ltt.
        loss: zero-one, brier or score.
        epsilon: tolerated risk.
        delta: tolerated probability of failure (ucb and ltt).
        n: number of calibration samples.
        never: whether nothing but never exiting was safe.
    """
    words = _LOSS_WORDS[loss]
    if never:
        return (
            f"No member of the family that exits could be shown to keep the gap in {words} to full depth within "
            f"{epsilon:g} on {n} calibration samples, so no sample exits early; the gap is then 0 by definition."
        )
    if method == "naive":
        return (
            f"On these {n} calibration samples the mean gap in {words} to full depth is below {epsilon:g}; "
            "nothing is promised for other samples."
        )
    drawn = f"for samples drawn like the {n} calibration samples, which must not have been used to choose the plan"
    if method == "crc":
        return (
            f"In expectation over calibration sets and a new sample, the gap in {words} to full depth "
            f"is at most {epsilon:g}, {drawn}."
        )
    return (
        f"With probability at least {1 - delta:g} over calibration sets, the expected gap in {words} to full depth, "
        f"with negative gaps counted as 0, is at most {epsilon:g} (and so is the expected signed gap), {drawn}."
    )
