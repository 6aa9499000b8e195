"""A few calibration images for each exit, small, in a run's folder: what is easy and what is hard, for a person to see.

They are kept beside the plan, because a report is made without the model and without the data.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from maqee.apq import Trace
from maqee.data import ImageSet
from maqee.errors import MaqeeError
from maqee.evaluation.answers import as_seen
from maqee.evaluation.record import evaluation_batches
from maqee.exits import EarlyExitModel
from maqee.io import read_json, write_json
from maqee.policy import take_exits
from maqee.tasks import Task

FORMAT, VERSION = "maqee-examples", 1
EACH = 3  # easy and hard ones at an exit
SIDE = 128  # most pixels along a side
LOSSLESS = 64  # images with sides of at most so many pixels are kept as they are
QUALITY = 80  # of larger ones, as JPEG

Place = Literal["easy", "hard"]


@dataclass(frozen=True, kw_only=True)
class KeptExample:
    """One image and what became of it.

    Attributes:
        exit: the exit that it takes, counted from 0; full depth is the last.
        place: "easy" is among the surest that leave there, "hard" among the least sure.
        name: of the image.
        confidence: how sure the exit is.
        score: how good its answer is, by the task, 0 to 1.
        answer: what the exit says, where that is one word.
        truth: what is right, likewise.
        picture: a small copy, as a data URI.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    exit: int
    place: Place
    name: str
    confidence: float
    score: float
    answer: str
    truth: str
    picture: str


@dataclass(frozen=True, kw_only=True)
class KeptExamples:
    """All of a run.

    Attributes:
        thresholds: the policy that they took their exits by.
        examples: by exit, the easy ones first.
    """

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    thresholds: tuple[float, ...]
    examples: tuple[KeptExample, ...]

    def save(self, path: Path) -> None:
        """Write a JSON file."""
        write_json(path, {"format": FORMAT, "version": VERSION, **asdict(self)})

    @classmethod
    def load(cls, path: Path) -> KeptExamples:
        """Read what `save` wrote; anything else is the user's error, named."""
        values = read_json(path)
        if (values.pop("format", None), values.pop("version", None)) != (FORMAT, VERSION):
            raise MaqeeError(f"{path}: these are no examples that this maqee reads: delete the file.")
        try:
            return TypeAdapter(cls).validate_json(json.dumps(values))
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise MaqeeError(f"{path}: {place}: {error.errors()[0]['msg']}: delete the file.") from error


class Choice(NamedTuple):
    """A sample of a trace that is worth showing."""

    sample: int
    exit: int
    place: Place


def choose_examples(trace: Trace, thresholds: tuple[float, ...], each: int = EACH) -> list[Choice]:
    """Of those who leave at each exit, the surest and the least sure; nobody is both."""
    taken = take_exits(trace.confidence[:, :-1], thresholds)
    found = []
    for number in range(trace.exits + 1):
        leaving = np.flatnonzero(taken == number)
        surest_first = leaving[np.argsort(-trace.confidence[leaving, number], kind="stable")]
        easy = surest_first[: min(each, (len(leaving) + 1) // 2)]
        hard = surest_first[len(easy) :][-each:][::-1]
        found += [Choice(int(sample), number, "easy") for sample in easy]
        found += [Choice(int(sample), number, "hard") for sample in hard]
    return found


@torch.inference_mode()
def collect_examples(
    network: EarlyExitModel, data: ImageSet, task: Task, trace: Trace, thresholds: tuple[float, ...]
) -> KeptExamples:
    """Small copies of the images, with the answers of the exits that they take.

    Args:
        network: the quantized model at the trace's bits.
        data: the images of the trace, in its order.
        task: what is predicted.
        trace: knows how sure every exit is.
        thresholds: the policy.
    """
    chosen = choose_examples(trace, thresholds)
    shown = data.select([choice.sample for choice in chosen])
    kept: list[KeptExample] = []
    for images, targets in evaluation_batches(network, shown):
        outputs = network.forward_all(images).outputs if task.targets == "labels" else None
        for row, image in enumerate(images):
            sample, number, place = chosen[len(kept)]
            score, answer, truth = float(trace.correct[sample, number]), "", ""
            if outputs is not None:
                right = int(targets[row])
                truth = class_name(data.classes, right)
                answer = truth if score == 1 else class_name(data.classes, _wrong_class(outputs[number][row], right))
            kept.append(
                KeptExample(
                    exit=number,
                    place=place,
                    name=data.images.name(sample),
                    confidence=float(trace.confidence[sample, number]),
                    score=score,
                    answer=answer,
                    truth=truth,
                    picture=thumbnail(as_seen(image, network.backbone.preprocessing).cpu()),
                )
            )
    return KeptExamples(thresholds=tuple(thresholds), examples=tuple(kept))


def _wrong_class(logits: Tensor, right: int) -> int:
    """The likeliest class but the right one: the trace knows that the answer was wrong.

    Run again in another batch, logits may differ in the last place, and a quantized model makes more of that.
    """
    return int(logits.index_fill(0, torch.tensor([right], device=logits.device), -torch.inf).argmax())


def class_name(classes: Sequence[str], number: int) -> str:
    """What to call a class; its number where a model knows more classes than its images have names for."""
    return classes[number] if number < len(classes) else str(number)


def thumbnail(pixels: Tensor) -> str:
    """An image (height, width, channels) from 0 to 1 as a small data URI; equal images give equal ones."""
    values: Any = (pixels * 255).round().to(torch.uint8).numpy()
    picture = Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values[..., :3])
    buffer = io.BytesIO()
    kind = "png" if max(picture.size) <= LOSSLESS else "jpeg"
    if kind == "png":
        picture.save(buffer, format="png", optimize=True)
    else:
        picture.thumbnail((SIDE, SIDE))
        picture.save(buffer, format="jpeg", quality=QUALITY)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
