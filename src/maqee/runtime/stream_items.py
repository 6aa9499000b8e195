"""What comes in a stream, one by one, and the answer that belongs to each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from maqee.errors import MaqeeError
from maqee.exits import Decision, EarlyExitModel
from maqee.runtime.checks import check_images
from maqee.runtime.input_batches import Seen, see_picture, to_batch, unreadable
from maqee.runtime.pictures import ImageLike, NamedPicture, pictures_of
from maqee.runtime.predictions import Prediction
from maqee.runtime.predictor import make_prediction
from maqee.runtime.view import View
from maqee.tasks import Task


@dataclass(frozen=True)
class TensorItem:
    """Normalised images, as `run` takes them.

    Attributes:
        images: (n, channels, height, width).
        single: whether it came as one image without the batch dimension.
    """

    images: Tensor
    single: bool


@dataclass(frozen=True)
class PictureItem:
    """A picture, as `predict` takes it.

    Attributes:
        picture: with its name.
        seen: what the model sees of it, once it is decoded.
    """

    picture: NamedPicture
    seen: Future[Seen | None]


StreamItem = TensorItem | PictureItem


class TensorPlace(NamedTuple):
    """What its answer needs to know of a `TensorItem`, whose images need not be kept so long."""

    size: int
    single: bool


class PicturePlace(NamedTuple):
    """What its answer needs to know of a `PictureItem`."""

    name: str
    view: View


def size_of(item: StreamItem) -> int:
    """Number of images."""
    return len(item.images) if isinstance(item, TensorItem) else 1


def each_item(images: Iterable[ImageLike], model: EarlyExitModel, pool: Executor) -> Iterator[StreamItem]:
    """What is handed over, as it comes: tensors are for `run`, all else are pictures, which the pool decodes."""
    channels, preprocessing, count = model.backbone.config.channels, model.backbone.preprocessing, 0
    sizes: set[tuple[int, ...]] = set()
    for given in images:
        if isinstance(given, Tensor):
            item = TensorItem(given[None] if given.ndim == 3 else given, given.ndim == 3)
            check_images(item.images, channels)
            if not len(item.images):
                raise MaqeeError("A batch of the stream holds no image: leave it out.")
            sizes.add(tuple(item.images.shape[2:]))
            _check_one_size(sizes)
            yield item
            count += len(item.images)
            continue
        sizes.add(preprocessing.image_size)
        _check_one_size(sizes)
        for picture in pictures_of(given, count):
            yield PictureItem(picture, pool.submit(see_picture, picture, preprocessing))
            count += 1


def failure_of(item: StreamItem) -> BaseException | None:
    """Why the model cannot see an item; waits until it is decoded."""
    if isinstance(item, TensorItem):
        return None
    error = item.seen.exception()
    return unreadable(item.picture.name) if error is None and item.seen.result() is None else error


def images_of(items: Sequence[StreamItem], model: EarlyExitModel, device: torch.device) -> list[Tensor]:
    """Everything in order, as the model takes it; pictures that stand together are prepared together."""
    batches: list[Tensor] = []
    together: list[Seen] = []
    for item in items:
        if isinstance(item, PictureItem):
            seen = item.seen.result()
            assert seen is not None, "items that failed are not handed on"
            together.append(seen)
            continue
        if together:
            batches.append(to_batch(together, model.backbone.preprocessing, device))
            together = []
        batches.append(item.images.to(device, non_blocking=True))
    return [*batches, to_batch(together, model.backbone.preprocessing, device)] if together else batches


def _check_one_size(sizes: set[tuple[int, ...]]) -> None:
    if len(sizes) > 1:
        named = " and ".join(sorted("x".join(map(str, size)) for size in sizes))
        raise MaqeeError(f"The images of a stream go through the model together, and these are {named}: resize them.")


class ItemAnswers:
    """Gives every item its answer when all its images have theirs.

    Args:
        model: the network that answers.
        task: what is predicted.
        top: classes to name for a picture, at most.
    """

    def __init__(self, model: EarlyExitModel, task: Task, top: int) -> None:
        self.model, self.task, self.top = model, task, top
        self._expected: deque[TensorPlace | PicturePlace] = deque()
        self._parts: list[Decision] = []  # of the first item that is expected

    def expect(self, items: Iterable[StreamItem]) -> None:
        """Items whose images go in now."""
        self._expected.extend(map(_place_of, items))

    def give(self, answers: Decision) -> Iterator[Decision | Prediction]:
        """Answers for the next images in order, to those of the items."""
        start, total = 0, len(answers.exit)
        on_host: Decision | None = None
        while start < total:
            place = self._expected[0]
            if isinstance(place, PicturePlace):
                on_host = on_host or self._to_host(answers)
                self._expected.popleft()
                decision = Decision(*(values[start] for values in on_host))
                yield make_prediction(self.model, self.task, place.name, place.view, decision, self.top)
                start += 1
                continue
            stop = min(total, start + place.size - sum(len(part.exit) for part in self._parts))
            self._parts.append(Decision(*(values[start:stop] for values in answers)))
            start = stop
            if sum(len(part.exit) for part in self._parts) == place.size:
                self._expected.popleft()
                yield self._join(place.single)

    def _join(self, single: bool) -> Decision:
        parts, self._parts = self._parts, []
        whole = Decision(*map(torch.cat, zip(*parts, strict=True))) if len(parts) > 1 else parts[0]
        return Decision(*(values[0] for values in whole)) if single else whole

    def _to_host(self, answers: Decision) -> Decision:
        """One transfer for all; masks are made where the scores lie, they are larger than those."""
        output = answers.output if self.task.targets == "masks" else answers.output.cpu()
        return Decision(output, answers.exit.cpu(), answers.confidence.cpu())


def _place_of(item: StreamItem) -> TensorPlace | PicturePlace:
    if isinstance(item, TensorItem):
        return TensorPlace(len(item.images), item.single)
    seen = item.seen.result()
    assert seen is not None, "items that failed are not handed on"
    return PicturePlace(item.picture.name, seen.view)
