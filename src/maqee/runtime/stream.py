"""Images in, answers out, in order and without end: full batches, decoding beside computing, bounded memory."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits import Decision, EarlyExitModel
from maqee.policy import Policy
from maqee.runtime.pictures import ImageLike, Images
from maqee.runtime.predictions import Prediction
from maqee.runtime.read_ahead import ReadAhead
from maqee.runtime.rebatching import Rebatcher
from maqee.runtime.stream_items import ItemAnswers, each_item, failure_of, images_of, size_of
from maqee.tasks import Task

BATCHES_INSIDE = 32  # where nobody says how many: a road that one image in 32 takes still gets full batches


def stream_answers(
    model: EarlyExitModel,
    policy: Policy,
    task: Task,
    images: Images,
    *,
    batch: int = 256,
    limit: int | None = None,
    max_wait: float | None = None,
    top: int = 5,
) -> Iterator[Decision | Prediction]:
    """An answer for every item, in the order they came. The arguments are those of `ReadyModel.stream`."""
    limit = BATCHES_INSIDE * batch if limit is None else limit
    if batch < 1:
        raise MaqeeError(f"batch: {batch} must be at least 1 image.")
    if limit < batch:
        raise MaqeeError(f"limit: {limit} images inside cannot fill a batch of {batch}: give at least as many.")
    if max_wait is not None and not max_wait >= 0:
        raise MaqeeError(f"max_wait: {max_wait} must be a number of seconds from 0 up.")
    if top < 1:
        raise MaqeeError(f"top: {top} must be at least 1 class.")
    if not model.backbone.config.num_classes:
        raise MaqeeError("The model has no classifier, so that it cannot predict: load it with num_classes set.")
    alone = isinstance(images, str | Image.Image | np.ndarray | Tensor) or not isinstance(images, Iterable)
    several: Iterable[ImageLike] = [images] if alone else images  # type: ignore[list-item, assignment]
    answers = ItemAnswers(model, task, top)
    rebatcher = Rebatcher(model, policy, batch, limit, roads_ahead(next(model.parameters()).device))
    return _stream(model, answers, rebatcher, several, max_wait)


def roads_ahead(device: torch.device) -> int:
    """How many roads are launched before an earlier one is settled: on a GPU one, which bridges what the host does."""
    return int(device.type == "cuda")


def _stream(
    model: EarlyExitModel,
    answers: ItemAnswers,
    rebatcher: Rebatcher,
    images: Iterable[ImageLike],
    max_wait: float | None,
) -> Iterator[Decision | Prediction]:
    device, batch = next(model.parameters()).device, rebatcher.schedule.batch
    failure: BaseException | None = None
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(thread_name_prefix="maqee-decode")
        stack.callback(pool.shutdown, cancel_futures=True)
        source = ReadAhead(each_item(images, model, pool), size_of, 2 * batch)
        stack.callback(source.close)
        waits = _Waits(max_wait)
        ended = False
        while True:
            finished = rebatcher.hand_out()
            # What is next is started before what is finished is handed out: a GPU computes while the caller looks.
            launched = rebatcher.launch(flush=ended or waits.overdue())
            if finished is not None:
                waits.leave(len(finished.exit))
                yield from answers.give(finished)
            if launched:
                if rebatcher.full:
                    rebatcher.settle()
                continue
            busy = bool(rebatcher.launched)
            if not busy and ended:
                break
            if not ended and rebatcher.arrived_count < batch:
                read = source.take(batch - rebatcher.arrived_count, 0.0 if busy else waits.seconds_left())
                good = list(itertools.takewhile(lambda one: failure_of(one.item) is None, read))
                answers.expect(one.item for one in good)
                for one in good:
                    waits.enter(one.size, one.time)
                for part in images_of([one.item for one in good], model, device):
                    rebatcher.add(part)
                if len(good) < len(read):
                    failure = failure_of(read[len(good)].item)
                ended = failure is not None or source.ended
                if read:
                    continue
            if busy:
                rebatcher.settle()
    # Whatever came before it has got its answer by now.
    if (error := failure or source.error) is not None:
        raise error


class _Waits:
    """How long the oldest image has been here.

    Args:
        most: seconds that it may be; None for as long as it takes.
    """

    def __init__(self, most: float | None) -> None:
        self.most = most
        self._entered: deque[tuple[float, int]] = deque()  # when, and how many

    def enter(self, count: int, when: float) -> None:
        """Images came in."""
        self._entered.append((when, count))

    def leave(self, count: int) -> None:
        """The oldest ones were handed out."""
        while count:
            when, here = self._entered.popleft()
            if here > count:
                self._entered.appendleft((when, here - count))
            count -= min(here, count)

    def seconds_left(self) -> float | None:
        """Until the oldest image is overdue; None where that never happens."""
        if self.most is None or not self._entered:
            return None
        return max(0.0, self._entered[0][0] + self.most - time.monotonic())

    def overdue(self) -> bool:
        """Whether it is."""
        return self.seconds_left() == 0.0
