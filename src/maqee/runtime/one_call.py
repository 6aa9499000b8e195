"""Predictions in one call: the model is loaded where a folder is given."""

from __future__ import annotations

from pathlib import Path

from maqee.device import pick_device
from maqee.errors import MaqeeError
from maqee.policy import Policy
from maqee.runtime.loading import load, read_plan
from maqee.runtime.pictures import Images
from maqee.runtime.predictions import Prediction
from maqee.runtime.ready import ReadyModel


def predict(
    model: str | Path | ReadyModel,
    images: Images,
    *,
    top: int = 5,
    policy: Policy | str | Path | None = None,
    threshold: float | None = None,
    batch_size: int = 16,
    device: str | None = None,
) -> list[Prediction]:
    """What a model says about pictures: `predict("run", "pics/*.jpg")`.

    Args:
        model: a folder of `maqee compress`, `maqee train`, ..., or what `maqee.load` made of one.
        images: files, folders, patterns, PIL images, arrays or tensors; see `ReadyModel.predict`.
        top: classes to name for a picture, at most.
        policy: other thresholds: a policy, or the path of a plan.
        threshold: the confidence at which every exit is taken, instead of a policy. Without either, a compressed model
            follows its plan, and a trained one runs at full depth.
        batch_size: pictures that go through the model together.
        device: where it runs; the GPU if there is one, and for a loaded model where it is.
    """
    return open_model(model, policy, threshold, device).predict(images, top, batch_size)


def open_model(
    model: str | Path | ReadyModel,
    policy: Policy | str | Path | None = None,
    threshold: float | None = None,
    device: str | None = None,
) -> ReadyModel:
    """A model with the thresholds and on the device that are asked for; the arguments are those of `predict`."""
    if policy is not None and threshold is not None:
        raise MaqeeError("A policy has thresholds of its own: give either policy or threshold.")
    if threshold is not None and not 0 <= threshold <= 1:
        raise MaqeeError(f"threshold: {threshold} must be from 0 to 1; above 1 no exit would ever be taken.")
    if isinstance(model, ReadyModel):
        ready = model if device is None else model.to(pick_device(device))
    else:
        ready = load(model, policy).to(pick_device(device))
    if threshold is not None:
        return ready.with_policy(threshold)
    if policy is None or not isinstance(model, ReadyModel):
        return ready
    return ready.with_policy(policy if isinstance(policy, Policy) else _thresholds(ready, policy))


def _thresholds(ready: ReadyModel, path: str | Path) -> Policy:
    """A plan's, for a model that is loaded already: its confidence is not changed behind the caller's back."""
    plan = read_plan(path)
    if plan.task != ready.task_name:
        raise MaqeeError(
            f"The plan {path} decides by the confidence of {plan.task}, the model by that of {ready.task_name}: load "
            "the model with this plan as its policy."
        )
    return plan.policy
