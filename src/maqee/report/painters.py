"""The painter for each kind of target."""

from __future__ import annotations

from collections.abc import Callable

from maqee.errors import MaqeeError
from maqee.evaluation.answers import Example
from maqee.report.box_panels import BoxPainter
from maqee.report.label_panels import LabelPainter
from maqee.report.mask_panels import MaskPainter
from maqee.report.panels import Painter

PAINTERS: dict[str, Callable[[Example, tuple[str, ...]], Painter]] = {
    "labels": LabelPainter,
    "masks": MaskPainter,
    "boxes": BoxPainter,
}


def make_painter(kind: str, example: Example, classes: tuple[str, ...]) -> Painter:
    """The painter of one example."""
    if kind not in PAINTERS:
        raise MaqeeError(f"Targets of kind {kind!r} cannot be shown: choose data with {', '.join(PAINTERS)}.")
    return PAINTERS[kind](example, classes)
