"""Times that depend on widths: what leaving takes on an engine where all blocks have one pair of widths.

On integer units most pairs take the same time, but not all: on OpenVINO eight bits of activations take longer than
seven, and eight bits of both more than twice as long. What a pair takes is measured and not guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from maqee.errors import MaqeeError
from maqee.widths import BitPair, BitSettings, BlockWidths

if TYPE_CHECKING:
    from maqee.apq.options import SearchOptions


class TimedPair(NamedTuple):
    """One pair of widths for all blocks.

    Attributes:
        bits: of weights and activations, such as W5A7.
        exit_ms: milliseconds of an image that leaves at each exit and at full depth.
    """

    bits: str
    exit_ms: tuple[float, ...]

    @property
    def widths(self) -> BitPair:
        """(weight, activation) bits."""
        found = re.fullmatch(r"W(\d+)A(\d+)", self.bits)
        if found is None:
            raise MaqeeError(f"timed_pairs: {self.bits!r} must be like W5A7.")
        return int(found[1]), int(found[2])


def times_at(options: SearchOptions, bits: BitSettings) -> tuple[float, ...] | None:
    """What leaving takes at these widths: as the pair says that all blocks have, else as it is for all widths."""
    for pair in options.timed_pairs:
        if set(bits.blocks) == {BlockWidths.uniform(*pair.widths)}:
            return pair.exit_ms
    return options.exit_ms


def ranges_of(pairs: tuple[TimedPair, ...]) -> tuple[BitPair, BitPair]:
    """The fewest and the most bits of weights, and of activations."""
    weights, activations = zip(*(pair.widths for pair in pairs), strict=True)
    return (min(weights), max(weights)), (min(activations), max(activations))
