"""Risk control: what can be promised about a finished policy, from samples that did not choose it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maqee.apq.control.boldest import control as control
    from maqee.apq.control.family import offset_family as offset_family
    from maqee.apq.control.guarantee import Guarantee as Guarantee
else:
    from maqee.lazy import attach

    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Guarantee": "maqee.apq.control.guarantee",
            "control": "maqee.apq.control.boldest",
            "offset_family": "maqee.apq.control.family",
        },
    )
