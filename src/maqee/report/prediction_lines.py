"""Predictions as plain text, line by line, so that they can be printed as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_TITLES = {"labels": "classes", "boxes": "objects", "areas": "areas"}
_WIDEST = 60  # longer names stand out, rather than all others having much room behind them


def name_width(names: Sequence[str]) -> int:
    """Room for the names."""
    return min(_WIDEST, max(len("image"), *(len(name) for name in names)))


def prediction_heading(prediction: dict[str, Any], width: int) -> str:
    """The line above all others, for predictions of this kind."""
    title = next(title for key, title in _TITLES.items() if key in prediction)
    return f"{'image':<{width}}  {'exit':<27}{'confidence':>10}  {title}"


def prediction_lines(prediction: dict[str, Any], width: int, depth: int) -> list[str]:
    """One line for a picture, and one more for each box in it.

    Args:
        prediction: what `Prediction.to_json` gives.
        width: of the names.
        depth: blocks of the model.
    """
    where = f"exit after block {prediction['exit']} of {depth}"
    start = f"{prediction['image']:<{width}}  {where:<27}{prediction['confidence']:>10.1%}  "
    if "boxes" in prediction:
        boxes = prediction["boxes"]
        count = f"{len(boxes)} object{'' if len(boxes) == 1 else 's'}" if boxes else "none"
        return [start + count, *map(_box_line, boxes)]
    key, share = ("labels", "probability") if "labels" in prediction else ("areas", "share")
    return [start + "; ".join(f"{entry['name']} {entry[share]:.1%}" for entry in prediction[key])]


def speed_line(exits: Sequence[int], depth: int, seconds: float, device: str, quantized: bool) -> str:
    """How deep the pictures went on average, and how long that took, with what kind of figure that is."""
    count = len(exits)
    arithmetic = "quantization simulated" if quantized else "full precision"
    return (
        f"{count} image{'' if count == 1 else 's'}, mean exit {sum(exits) / count:.2f} of {depth}, "
        f"{count / max(seconds, 1e-9):.3g} images a second on {device}, reading them included (early exit executed, "
        f"{arithmetic})"
    )


def _box_line(box: dict[str, Any]) -> str:
    sides = ", ".join(f"{side} {box[side]:.0f}" for side in ("left", "top", "right", "bottom"))
    return f"  {box['name']} {box['probability']:.1%}: {sides}"
