"""Predictions for pictures, each from the exit that was sure enough."""

from __future__ import annotations

from collections.abc import Iterator

from maqee.errors import MaqeeError
from maqee.exits import Decision, EarlyExitModel
from maqee.policy import Policy
from maqee.runtime.input_batches import read_batches
from maqee.runtime.pictures import Images
from maqee.runtime.predictions import Prediction
from maqee.runtime.translate import translate
from maqee.runtime.view import View
from maqee.tasks import Task


def predict_each(
    model: EarlyExitModel, policy: Policy, task: Task, images: Images, top: int = 5, batch_size: int = 16
) -> Iterator[Prediction]:
    """Predictions in the order of the pictures, as soon as their batch is done.

    Args:
        model: the network, which really stops at the exits that the policy takes.
        policy: where to stop.
        task: what is predicted.
        images: what `list_pictures` takes, or an iterator over such things.
        top: classes to name for a picture, at most.
        batch_size: pictures that go through the model together.
    """
    if top < 1:
        raise MaqeeError(f"top: {top} must be at least 1 class.")
    if batch_size < 1:
        raise MaqeeError(f"batch_size: {batch_size} must be at least 1 image.")
    if not model.backbone.config.num_classes:
        raise MaqeeError("The model has no classifier, so that it cannot predict: load it with num_classes set.")
    return _predict_each(model, policy, task, images, top, batch_size)


def _predict_each(
    model: EarlyExitModel, policy: Policy, task: Task, images: Images, top: int, batch_size: int
) -> Iterator[Prediction]:
    device = next(model.parameters()).device
    for batch in read_batches(images, model.backbone.preprocessing, batch_size, device):
        decision = model.run(batch.images, policy)
        # One transfer for the whole batch; masks are made where the scores lie, they are larger than those.
        outputs = decision.output if task.targets == "masks" else decision.output.cpu()
        rows = zip(outputs, decision.exit.cpu(), decision.confidence.cpu(), strict=True)
        for name, view, row in zip(batch.names, batch.views, rows, strict=True):
            yield make_prediction(model, task, name, view, Decision(*row), top)


def make_prediction(
    model: EarlyExitModel, task: Task, name: str, view: View, decision: Decision, top: int
) -> Prediction:
    """What a decision says about one picture.

    Args:
        model: the network that decided.
        task: what is predicted.
        name: the picture's.
        view: what part of the picture the model saw.
        decision: about this picture alone, without a batch dimension.
        top: classes to name, at most.
    """
    index = int(decision.exit)
    return Prediction(
        image=name,
        exit=model.exit_blocks[index],
        full_depth=index == model.num_exits,
        confidence=float(decision.confidence),
        **translate(decision.output, view, task, model.backbone.classes, top),
    )
