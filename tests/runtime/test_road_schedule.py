"""Which road runs next: by hand, and for any images that leave anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.runtime.road_schedule import RoadSchedule, Step


@pytest.mark.parametrize(
    ("waiting", "room", "oldest", "flush", "expected"),
    [
        ([4, 4, 4], 9, 1, False, Step(2, 4)),  # the deepest first
        ([9, 5, 3], 9, 1, False, Step(1, 4)),  # a full batch, not all that wait
        ([5, 3, 3], 9, 1, False, Step(0, 4)),
        ([3, 3, 3], 9, 1, False, None),  # no full batch: wait for more
        ([0, 0, 0], 9, None, True, None),
        ([3, 3, 3], 9, 1, True, Step(0, 3)),  # the shallowest first: what stays joins the next
        ([0, 3, 3], 9, 2, True, Step(1, 3)),
        ([3, 3, 4], 9, 1, True, Step(2, 4)),  # a full batch still goes before
        ([4, 3, 2], 3, 2, False, Step(2, 2)),  # no room for four more: the road of the oldest, part-full
        ([2, 3, 2], 1, 1, True, Step(1, 3)),
        ([2, 3, 2], 1, 1, False, None),  # nothing wants to begin yet, so nothing is in the way
        ([7], 4, None, False, Step(0, 4)),  # a model without exits
    ],
)
def test_by_hand(waiting: Sequence[int], room: int, oldest: int | None, flush: bool, expected: Step | None) -> None:
    assert RoadSchedule(batch=4).next(waiting, room, oldest, flush) == expected


def test_full_batches_alone_by_hand() -> None:
    schedule = RoadSchedule(batch=4)
    assert schedule.full([9, 5, 3], room=9) == Step(1, 4)
    assert schedule.full([9, 3, 3], room=4) == Step(0, 4)
    assert schedule.full([9, 3, 3], room=3) is None  # none may begin, and part batches are not for it
    assert schedule.full([3, 3, 3], room=9) is None


@given(
    leaves=st.lists(st.integers(0, 3), max_size=60),
    batch=st.integers(1, 7),
    more=st.integers(0, 30),
    flushes=st.sets(st.integers(0, 40)),
    ahead=st.integers(0, 1),
)
def test_everybody_leaves_in_full_batches_as_far_as_they_can(
    leaves: list[int], batch: int, more: int, flushes: set[int], ahead: int
) -> None:
    """Images are numbers, `leaves` says behind which of four roads each goes; any flushes between; a limit inside.

    One road may be launched ahead, before the last one has told who goes on: then only full batches are.
    """
    schedule, limit = RoadSchedule(batch), batch + more
    queues: list[list[int]] = [list(range(len(leaves))), [], [], []]
    inside: list[int] = []  # begun and not handed out, in order
    done: set[int] = set()
    out: list[int] = []
    launched: list[tuple[int, list[int]]] = []  # roads and images that are not settled yet
    for turn in range(10_000):
        while inside and inside[0] in done:
            out.append(inside.pop(0))
        waiting, room = [len(queue) for queue in queues], limit - len(inside)
        oldest = next((road for road, queue in enumerate(queues) if inside and inside[0] in queue), None)
        flush = waiting[0] < batch or turn in flushes
        step = schedule.full(waiting, room) if launched else schedule.next(waiting, room, oldest, flush)
        if step is not None:
            assert 0 < step.size <= min(batch, waiting[step.road])
            assert not any(count >= batch for count in waiting[step.road + 1 :])  # deepest first
            assert step.size == batch or flush or waiting[0] > room  # part-full only for a reason
            group, queues[step.road] = queues[step.road][: step.size], queues[step.road][step.size :]
            launched.append((step.road, group))
            if step.road == 0:
                inside += group
            assert len(inside) <= limit
        elif not launched:
            break
        if step is None or len(launched) > ahead:
            road, group = launched.pop(0)
            done |= {image for image in group if leaves[image] == road}
            if road < 3:
                queues[road + 1] += [image for image in group if leaves[image] > road]
                assert len(queues[road + 1]) < 2 * batch
    assert out == list(range(len(leaves)))
