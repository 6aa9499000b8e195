"""Early exit without losing the batch: a queue in front of every road, and full batches only.

`EarlyExitModel.run` takes finished images out of its batch, and what is left no longer fills the device. Here what is
left waits for others that got as far.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from maqee.exits import Decision, EarlyExitModel
from maqee.exits.segment import RunSegment
from maqee.policy import Policy
from maqee.runtime.fetching import Fetched
from maqee.runtime.graphs import GraphedSegment
from maqee.runtime.in_order import DONE, InOrder
from maqee.runtime.road_schedule import RoadSchedule
from maqee.runtime.token_queue import GetMemory, Group, TokenQueue, new_memory


class Launched(NamedTuple):
    """A road that was started; on a GPU it may still be running.

    Attributes:
        road: its index.
        group: the images in it; tokens are those behind its last block.
        output: of the exit at its end.
        confidence: of these outputs.
        leaving: who leaves there, (images,) of bool, on its way to the host.
    """

    road: int
    group: Group
    output: Tensor
    confidence: Tensor
    leaving: Fetched


class Rebatcher:
    """Runs a model road by road under a policy: `add` images, then `launch` and `settle` in turn, then `hand_out`.

    It knows nothing of the model but its roads (`model.roads`), so that it serves every engine. Recorded roads use
    their memory again and again: whoever runs one, this stream or another, what is not read yet is copied first.

    Args:
        model: the network.
        policy: where to stop.
        batch: images that go through a road together.
        limit: how many images may have begun and not been handed out.
        ahead: 1 lets a road be launched before the one before it is settled: a GPU then never waits for the host to see
            who leaves. 0 for a device that computes at once.
    """

    def __init__(self, model: EarlyExitModel, policy: Policy, batch: int, limit: int, ahead: int = 0) -> None:
        assert ahead in (0, 1), "queues have room for no more"
        self.roads, self.policy, self.ahead = model.roads(policy), policy, ahead
        self.schedule = RoadSchedule(batch)
        self.inside = InOrder(limit)
        self.arrived: deque[Tensor] = deque()
        self.arrived_count = 0
        behind = [road.segment for road in self.roads[1:]]
        self.queues = [TokenQueue(batch, _memory_of(segment)) for segment in behind]  # in front of road 1, 2, ...
        self.launched: deque[Launched] = deque()  # not settled yet, the oldest first
        for road in self.roads:
            if isinstance(road.segment, GraphedSegment):
                road.segment.readers.add(self)

    @property
    def count(self) -> int:
        """Images that were added and not handed out yet."""
        return self.arrived_count + self.inside.count

    def add(self, images: Tensor) -> None:
        """Let images wait in front of the first road: (n, channels, height, width)."""
        self.arrived.append(images)
        self.arrived_count += len(images)

    @property
    def full(self) -> bool:
        """Whether no more roads can be launched before one is settled."""
        return len(self.launched) > self.ahead

    def launch(self, flush: bool = False) -> bool:
        """Start the road whose turn it is; False where nothing can be run. With `flush` part batches run too.

        Part batches wait for what is launched and not settled, which may fill them.
        """
        assert not self.full, "settle first"
        waiting = [self.arrived_count, *(queue.count for queue in self.queues)]
        if self.launched:
            step = self.schedule.full(waiting, self.inside.room)
        else:
            step = self.schedule.next(waiting, self.inside.room, self.inside.oldest_road, flush)
        if step is None:
            return False
        group = self._begin(step.size) if step.road == 0 else self.queues[step.road - 1].take(step.size)
        with torch.inference_mode():
            index, segment = self.roads[step.road]
            x, new, output, confidence = segment(group.x, group.kept)
            kept = group.kept
            if self.launched:  # it will be settled first, into the queue that the kept tokens lie in
                kept = {block: tokens.clone() for block, tokens in kept.items()}
            if index < len(self.policy.thresholds):
                leaving = ~(confidence < self.policy.thresholds[index])  # the very comparison of `run`
            else:
                leaving = torch.ones(len(group.numbers), dtype=torch.bool)
            behind = Group(group.numbers, x, {**kept, **new})
            self.launched.append(Launched(step.road, behind, output, confidence, Fetched(leaving)))
        return True

    def settle(self) -> None:
        """Wait for the oldest launched road: answers of those who leave stand, the others wait in front of the next."""
        road, group, output, confidence, leaving = self.launched.popleft()
        leaves = leaving.wait().numpy()
        staying = np.flatnonzero(~leaves)
        with torch.inference_mode():
            if len(staying):
                self.queues[road].put(group, staying)
                self.inside.move(group.numbers[staying], road + 1)
            if leaves.any():
                self.inside.write(group.numbers, output, self.roads[road].exit, confidence)
                self.inside.move(group.numbers[leaves], DONE)

    def hand_out(self) -> Decision | None:
        """All answers that stand, in the order the images came, up to the oldest image that has none yet."""
        with torch.inference_mode():
            return self.inside.hand_out()

    def _begin(self, count: int) -> Group:
        """The first images that wait, as they came where that is possible, else put together."""
        parts: list[Tensor] = []
        missing = count
        while missing:
            images = self.arrived.popleft()
            if len(images) > missing:
                self.arrived.appendleft(images[missing:])
            parts.append(images[:missing])
            missing -= len(parts[-1])
        self.arrived_count -= count
        return Group(self.inside.begin(count), torch.cat(parts) if len(parts) > 1 else parts[0], {})

    def keep_outputs(self, segment: GraphedSegment) -> None:
        """Copy the tokens that a road has put out and nobody has fetched yet: it is about to write over them."""
        with torch.inference_mode():
            for place, one in enumerate(self.launched):
                if self.roads[one.road].segment is segment:
                    kept = {block: tokens.clone() for block, tokens in one.group.kept.items()}
                    self.launched[place] = one._replace(group=Group(one.group.numbers, one.group.x.clone(), kept))


def _memory_of(segment: RunSegment) -> GetMemory:
    """A recorded road lends the memory it reads, so that nothing is copied on the way there."""
    return segment.lend if isinstance(segment, GraphedSegment) else new_memory
