"""Predictions as plain text, line by line, so that they can be printed as they come."""

from __future__ import annotations

from collections.abc import Sequence

from maqee.runtime.predictions import Prediction

_WIDEST = 60  # longer names stand out, rather than all others having much room behind them
_TITLES = {"labels": "classes", "boxes": "objects", "areas": "areas"}


def name_width(names: Sequence[str]) -> int:
    """Room for the names."""
    return min(_WIDEST, max(len("image"), *(len(name) for name in names)))


def prediction_heading(width: int, kind: str) -> str:
    """The line above all others."""
    return f"{'image':<{width}}  {'exit':<27}{'confidence':>10}  {_TITLES[kind]}"


def prediction_lines(prediction: Prediction, width: int, depth: int) -> list[str]:
    """One line for a picture, and one more for each box in it.

    Args:
        prediction: what the model says.
        width: of the names.
        depth: blocks of the model.
    """
    where = f"exit after block {prediction.exit} of {depth}"
    start = f"{prediction.image:<{width}}  {where:<27}{prediction.confidence:>10.1%}  "
    if prediction.kind == "labels":
        return [start + "; ".join(f"{label.name} {label.probability:.1%}" for label in prediction.labels)]
    if prediction.kind == "areas":
        return [start + "; ".join(f"{area.name} {area.share:.1%}" for area in prediction.areas)]
    count = len(prediction.boxes)
    boxes = [
        f"  {box.name} {box.probability:.1%}: left {box.left:.0f}, top {box.top:.0f}, right {box.right:.0f}, "
        f"bottom {box.bottom:.0f}"
        for box in prediction.boxes
    ]
    return [start + (f"{count} object{'' if count == 1 else 's'}" if count else "none"), *boxes]


def speed_line(exits: Sequence[int], depth: int, seconds: float, device: str, quantized: bool) -> str:
    """How deep the pictures went on average, and how long that took, with what kind of figure that is."""
    count = len(exits)
    arithmetic = "quantization simulated" if quantized else "full precision"
    return (
        f"{count} image{'' if count == 1 else 's'}, mean exit {sum(exits) / count:.2f} of {depth}, "
        f"{count / max(seconds, 1e-9):.3g} images a second on {device}, reading them included (early exit executed, "
        f"{arithmetic})"
    )
