"""The interface of a task."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from maqee.registry import Registry


class Metric(Protocol):
    """Collects predictions batch by batch."""

    def update(self, output: Tensor, target: Tensor) -> None:
        """Take in a batch."""

    def compute(self) -> float:
        """The figure over everything taken in, from 0 to 1, larger is better."""

    def details(self) -> dict[str, float]:
        """Further figures over the same predictions, by name; may be empty."""


class Task(Protocol):
    """All that exits, training and search need to know of a task. Outputs and targets are tensors of any rank.

    Attributes:
        name: in the registry.
        metric_name: what the metric is called in tables.
        score_name: what the mean of scores is called there, which a search works with.
        targets: the kind of targets that a data set must have: "labels", "masks" or "boxes".
        on_device: whether losses are computed where the outputs lie, without the host.
    """

    name: str
    metric_name: str
    score_name: str
    targets: str
    on_device: bool

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Per-sample loss (batch,), differentiable. Targets may be soft."""

    def confidence(self, output: Tensor) -> Tensor:
        """Per-sample confidence (batch,) in 0..1: an exit is taken when it reaches the threshold."""

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """Per-sample quality (batch,) in 0..1, larger is better: what a search over exits counts for each image.

        For classification its mean is the metric. Where the metric is not a mean over images (mean IoU, mAP), it is
        the closest figure that a single image has.
        """

    def distillation(self, output: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Per-sample distance (batch,) of a prediction from a teacher's, differentiable, with the T^2 factor."""

    def metric(self) -> Metric:
        """A fresh collector."""

    def smoothed(self, amount: float) -> Task:
        """The same task with so much label smoothing in its loss; the user's error where that makes no sense."""


tasks: Registry[Task] = Registry("task")
