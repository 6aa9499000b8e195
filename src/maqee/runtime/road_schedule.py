"""Which road of an early-exit model runs next when images come in a stream. Numbers only: no model and no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Step(NamedTuple):
    """One run of one road.

    Attributes:
        road: its index; 0 begins with the images.
        size: how many of those that wait there go through it, the first ones first.
    """

    road: int
    size: int


@dataclass(frozen=True)
class RoadSchedule:
    """Full batches only, the deepest road first; what is left goes when it is told to, or when it is in the way.

    Deepest first, because images leave at the end: what waits inside is then never more than two batches a road, and a
    road never runs while the next one has a full batch in front of it.

    Attributes:
        batch: images that go through a road together.

    Example:
        >>> schedule = RoadSchedule(batch=8)
        >>> schedule.next([20, 3, 9], room=100)
        Step(road=2, size=8)
        >>> schedule.next([2, 3, 1], room=100) is None
        True
        >>> schedule.next([2, 3, 1], room=100, flush=True)
        Step(road=0, size=2)
    """

    batch: int

    def next(self, waiting: Sequence[int], room: int, oldest: int | None = None, flush: bool = False) -> Step | None:
        """What to run now; None where it is better to wait for more images.

        Args:
            waiting: images in front of each road.
            room: how many more images may begin.
            oldest: the road on which the oldest of those that have begun waits; finished images behind it cannot be
                handed out before it is.
            flush: let part batches go too: the shallowest first, since what stays joins those that wait on the next.
        """
        if (step := self.full(waiting, room)) is not None:
            return step
        entering = self.batch if waiting[0] >= self.batch else waiting[0] if flush else 0
        if entering > room:
            assert oldest is not None, "whoever has begun and is not finished waits on some road"
            return Step(oldest, waiting[oldest])
        if entering:
            return Step(0, entering)
        left = [road for road in range(1, len(waiting)) if waiting[road]] if flush else []
        return Step(left[0], waiting[left[0]]) if left else None

    def full(self, waiting: Sequence[int], room: int) -> Step | None:
        """The deepest road with a full batch in front of it, if there is one. The arguments are those of `next`."""
        for road in reversed(range(len(waiting))):
            if waiting[road] >= self.batch and (road or self.batch <= room):
                return Step(road, self.batch)
        return None
