"""A promise for a finished plan: calibration images that nobody looked at before decide how bold its policy may be.

The search promises nothing, and the images that chose a policy flatter it. So one offset is added to all thresholds of
the plan, other images are run through the finished quantized model, and the boldest policy is taken whose gap to full
depth is shown to be small (`maqee.apq.control.boldest`). The plan then carries that policy and the promise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.apq import Plan, Trace, policy_figures
from maqee.apq.control import Guarantee, control, offset_family
from maqee.apq.control.losses import BOUNDS, LossName, brier_losses
from maqee.data import ImageSet
from maqee.errors import MaqeeError, suggest
from maqee.evaluation.record import evaluation_batches, run_exits
from maqee.exits import EarlyExitModel
from maqee.tasks import Task

RiskMethod = Literal["crc", "ucb", "ltt"]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RiskOptions:
    """What is to be promised.

    Attributes:
        method: crc (in expectation), ucb or ltt (with probability 1 - delta).
        epsilon: tolerated gap between the loss at the exit taken and at full depth.
        delta: tolerated probability that the promise fails; crc does not use it.
        loss: zero-one or brier for classification, score (1 - score of an image) for other tasks; left out, the first
            that fits.
    """

    method: RiskMethod
    epsilon: float
    delta: float = 0.1
    loss: LossName | None = None

    def __post_init__(self) -> None:
        if self.method not in get_args(RiskMethod):
            raise suggest(self.method, list(get_args(RiskMethod)), "method of risk control")
        if self.loss is not None and self.loss not in BOUNDS:
            raise suggest(self.loss, list(BOUNDS), "loss")
        bound = BOUNDS[self.loss or "zero-one"]
        if not 0 < self.epsilon < bound:
            raise MaqeeError(f"epsilon: {self.epsilon}, the tolerated gap, must lie between 0 and {bound:g}.")
        if not 0 < self.delta < 1:
            raise MaqeeError(f"delta: {self.delta}, the tolerated probability of failure, must lie between 0 and 1.")

    def loss_for(self, task: Task) -> LossName:
        """The loss that goes with a task; the user's error if the one asked for does not."""
        if task.targets == "labels":
            fitting: tuple[LossName, ...] = ("zero-one", "brier")
        else:
            fitting = ("score",)
        if self.loss is None:
            return fitting[0]
        if self.loss not in fitting:
            raise MaqeeError(
                f"The loss {self.loss!r} cannot be promised for the task {task.name!r}: use {' or '.join(fitting)}."
            )
        return self.loss


class Answers(NamedTuple):
    """Confidences (n, exits) and bounded losses (n, exits + 1) of the quantized model."""

    confidence: NDArray[np.floating]
    losses: Floats


def check_risk(risk: RiskOptions, task: Task, calibration: ImageSet, left: int) -> None:
    """Complain before the work begins if the promise can never be made."""
    risk.loss_for(task)
    if left == 0:
        raise MaqeeError(
            f"{calibration.name} has {len(calibration)} images and all are used to fit and to search, so that none is "
            "left for a guarantee: search on fewer (samples)."
        )


def guarantee_plan(
    plan: Plan, trace: Trace, model: EarlyExitModel, images: ImageSet, task: Task, risk: RiskOptions
) -> Plan:
    """The plan with the boldest thresholds that can be promised, and the promise.

    Args:
        plan: the outcome of a search.
        trace: its calibration pass, for the figures of the new thresholds.
        model: the quantized model at the plan's bits.
        images: calibration images that neither fitting nor searching has seen.
        task: what is predicted.
        risk: what to promise.
    """
    loss = risk.loss_for(task)
    answers = collect_answers(model, images, task, loss)
    promise = choose_promised(answers, plan, risk, loss)
    figures = policy_figures(trace, promise.thresholds)
    return replace(plan, thresholds=promise.thresholds, got=figures, expected=None, guarantee=promise)


def choose_promised(answers: Answers, plan: Plan, risk: RiskOptions, loss: LossName) -> Guarantee:
    """Test the family of policies around a plan, from never exiting to bold.

    Where the budget asks for a metric, the search has gone as far as it allows, and no bolder policy is tried. Where
    nothing was asked, the promise alone decides.
    """
    family = np.round(offset_family(plan.thresholds), 10)  # 0.8 - 0.2 is 0.6
    if plan.budget.asks_for_metric:
        family = family[(family >= np.array(plan.thresholds)).all(axis=1)]
    return control(
        answers.confidence,
        answers.losses,
        family,
        method=risk.method,
        loss=loss,
        epsilon=risk.epsilon,
        delta=risk.delta,
        seed=plan.seed,
    )


@torch.inference_mode()
def collect_answers(model: EarlyExitModel, images: ImageSet, task: Task, loss: LossName) -> Answers:
    """Run every exit on every image."""
    confidence, losses = [], []
    for outputs, targets in run_exits(model, evaluation_batches(model, images)):
        confidence.append(_columns([task.confidence(output) for output in outputs[:-1]]))
        if loss == "brier":
            probabilities = torch.stack([output.softmax(dim=-1) for output in outputs], dim=1)
            losses.append(brier_losses(probabilities.double().cpu().numpy(), targets.cpu().numpy()))
        else:
            scores = _columns([task.score(output, targets) for output in outputs]).astype(np.float64)
            losses.append(np.clip(1 - scores, 0.0, 1.0))
    return Answers(np.concatenate(confidence), np.concatenate(losses))


def check_kept(plan: Plan, trace: Trace) -> None:
    """Complain if a plan's promise has cost it its budget.

    A drop from what the quantized model can reach counts from full depth at the plan's bits, as in `maqee.search`.
    """
    if plan.guarantee is None:
        return
    budget, got = plan.budget, plan.got
    wanted = f"together with a {plan.guarantee.method} guarantee of {plan.guarantee.epsilon:g}"
    if budget.max_cost is not None and got.cost > budget.max_cost * (1 + 1e-9):
        raise MaqeeError(
            f"{budget.asked_cost} cannot be met {wanted}: the boldest policy that is shown to be safe "
            f"costs {got.cost:.4g}; allow more of it, a larger epsilon, or give more calibration images."
        )
    needed = budget.needed_metric(trace.float_metric, trace.full_metric)
    if needed is not None and budget.like is None and got.metric < needed - 1e-9:
        raise MaqeeError(
            f"{budget.asked_metric} cannot be met {wanted}: the boldest policy that is shown to be safe "
            f"reaches {got.metric:.4f}; ask for less, or allow a larger epsilon."
        )


def _columns(values: list[Tensor]) -> NDArray[np.floating]:
    return torch.stack(values, dim=1).cpu().numpy()
