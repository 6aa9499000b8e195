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


class Task(Protocol):
    """All that exits, training and search need to know of a task."""

    name: str
    metric_name: str

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Per-sample loss (batch,), differentiable. Targets may be soft."""

    def confidence(self, output: Tensor) -> Tensor:
        """Per-sample confidence (batch,) in 0..1: an exit is taken when it reaches the threshold."""

    def distillation(self, output: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Per-sample distance (batch,) of a prediction from a teacher's, differentiable, with the T^2 factor."""

    def metric(self) -> Metric:
        """A fresh collector."""


tasks: Registry[Task] = Registry("task")
