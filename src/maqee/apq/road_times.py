"""What leaving at each exit takes on a real engine: a cost that was measured, in place of bit operations.

A model runs road by road, from the images to the first exit and from there to the next, and on today's integer units a
road takes about as long at two bits as at eight. So the time of a policy needs one number an exit, and bits are free;
or one number for each of several pairs of widths, where these were timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from maqee.apq._stored import STRICT, check_format, from_json
from maqee.apq.options import SearchOptions, check_head_ms
from maqee.apq.timed_pairs import TimedPair, ranges_of
from maqee.errors import MaqeeError
from maqee.io import read_json, write_json
from maqee.widths import BitPair

VERSION = 1
# Fewer bits are no faster. Weights with more are slower: two products with 8-bit inputs then leave 16 bits.
WEIGHT_BITS, ACTIVATION_BITS = 6, 8


@dataclass(frozen=True, kw_only=True)
class RoadTimes:
    """Times of the roads between exits, as `maqee profile` writes them.

    Attributes:
        model: what was timed.
        engine: what ran it.
        device: where.
        batch: images at a time.
        repeats: timed repetitions; the median counts.
        exit_blocks: the block after which each road ends, full depth last.
        road_ms: milliseconds an image of every road, its exit's head included; the first has the embedding.
        head_ms: milliseconds an image that passes an exit saves where it is closed, of every exit but full depth; empty
            where that was not measured, and closing an exit then saves nothing.
        shares: of the multiply-accumulates of the whole, to compare with.
        environment: versions and hardware, without which a time means nothing.
        pairs: where several pairs of widths were timed, each with its own times, the fastest first; road_ms and head_ms
            are those of that one. What closing an exit saves is taken to be the same for all.
    """

    __pydantic_config__ = STRICT

    model: str
    engine: str
    device: str
    batch: int
    repeats: int
    exit_blocks: tuple[int, ...]
    road_ms: tuple[float, ...]
    shares: tuple[float, ...]
    environment: Mapping[str, Any]
    head_ms: tuple[float, ...] = ()
    pairs: tuple[TimedPair, ...] = ()

    def __post_init__(self) -> None:
        if len(self.road_ms) != len(self.exit_blocks):
            raise MaqeeError(
                f"road_ms: {len(self.road_ms)} times for {len(self.exit_blocks)} exits: give one for each."
            )
        if any(value <= 0 for value in self.road_ms):
            raise MaqeeError(f"road_ms: {list(self.road_ms)} must all be more than 0.")
        check_head_ms(self.head_ms or None, self.exit_ms)

    @property
    def exit_ms(self) -> tuple[float, ...]:
        """Milliseconds of an image that leaves at each exit and at full depth."""
        return tuple(accumulate(self.road_ms))

    @property
    def words(self) -> str:
        """What a cost in these milliseconds means."""
        return f"ms on {self.engine}, {self.device}, batch {self.batch}"

    @property
    def ranges(self) -> tuple[BitPair, BitPair]:
        """The widths to choose from, unless somebody says otherwise: fewest and most of weights, and of activations."""
        if not self.pairs:
            return (WEIGHT_BITS, WEIGHT_BITS), (ACTIVATION_BITS, ACTIVATION_BITS)
        return ranges_of(self.pairs)

    def options(self, base: SearchOptions | None = None) -> SearchOptions:
        """Search options that make time the cost; left out, the rest is usual, with the widths of `ranges`."""
        if base is None:
            (fewest, most), (act_fewest, act_most) = self.ranges
            base = SearchOptions(bit_min=fewest, bit_max=most, act_min=act_fewest, act_max=act_most)
        timed = replace(base, exit_ms=self.exit_ms, head_ms=self.head_ms or None, timed_on=self.words)
        return self._with_pairs(timed) if self.pairs else timed

    def _with_pairs(self, options: SearchOptions) -> SearchOptions:
        """The same with the pairs that lie within its ranges, and ranges that are no wider than these."""
        weights = range(options.bit_min, options.bit_max + 1)
        activations = range(options.act_min, options.act_max + 1)
        pairs = tuple(pair for pair in self.pairs if pair.widths[0] in weights and pair.widths[1] in activations)
        if not pairs:
            raise MaqeeError(
                f"None of the timed pairs ({', '.join(pair.bits for pair in self.pairs)}) lies within the ranges of "
                f"widths, {weights.start} to {weights[-1]} of weights and {activations.start} to {activations[-1]} of "
                "activations: widen them, or profile other pairs."
            )
        (fewest, most), (act_fewest, act_most) = ranges_of(pairs)
        return replace(
            options,
            bit_min=fewest,
            bit_max=most,
            act_min=act_fewest,
            act_max=act_most,
            exit_ms=pairs[0].exit_ms,
            timed_pairs=pairs,
        )

    def check_fits(self, exit_blocks: tuple[int, ...]) -> None:
        """Complain if it was measured with other exits."""
        if self.exit_blocks != exit_blocks:
            raise MaqeeError(
                f"The times are of a model with exits after blocks {list(self.exit_blocks)}, this one has them after "
                f"{list(exit_blocks)}: profile this model."
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee profile --out` writes them."""
        return {"format": "maqee-times", "version": VERSION, **asdict(self), "exit_ms": list(self.exit_ms)}

    def save(self, path: str | Path) -> None:
        """Write a JSON file."""
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> RoadTimes:
        """Read what `save` wrote."""
        path = Path(path)
        values = check_format(read_json(path), "times", VERSION, path)
        values.pop("exit_ms", None)
        return from_json(cls, values, path)
