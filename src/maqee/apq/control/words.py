"""What a guarantee promises, as a sentence for a report: numbers without their meaning are soon misquoted."""

from __future__ import annotations

_LOSS_WORDS = {"zero-one": "0-1 loss", "brier": "Brier score", "score": "1 - score of an image"}


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
