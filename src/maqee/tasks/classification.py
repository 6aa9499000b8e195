"""Image classification: cross-entropy, largest probability, top-1 accuracy."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from maqee.tasks.base import tasks


def max_probability(logits: Tensor) -> Tensor:
    """The paper's exit confidence: rho = max_j softmax(z)_j. (batch, classes) to (batch,)."""
    return torch.softmax(logits.float(), dim=-1).amax(dim=-1)


class Accuracy:
    """Share of samples whose largest logit is the label's."""

    def __init__(self) -> None:
        self.correct: Tensor | int = 0
        self.count = 0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Logits (batch, classes) and labels (batch,); the count stays on the device until asked."""
        self.correct = self.correct + (output.argmax(dim=-1) == target).sum()
        self.count += target.shape[0]

    def compute(self) -> float:
        """Accuracy from 0 to 1."""
        return int(self.correct) / self.count if self.count else 0.0

    def details(self) -> dict[str, float]:
        """Nothing more."""
        return {}


class Classification:
    """The task of naming what an image shows."""

    name = "classification"
    metric_name = score_name = "accuracy"
    targets = "labels"
    on_device = True

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy; target holds labels (batch,) or probabilities (batch, classes)."""
        return F.cross_entropy(output, target, reduction="none", label_smoothing=self.label_smoothing)

    def confidence(self, output: Tensor) -> Tensor:
        """Largest probability."""
        return max_probability(output)

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """1 where the largest logit is the label's, else 0."""
        return (output.argmax(dim=-1) == target).float()

    def distillation(self, output: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """T^2 KL(teacher || student) at temperature T, summed over classes."""
        student = F.log_softmax(output.float() / temperature, dim=-1)
        wanted = F.log_softmax(teacher.float() / temperature, dim=-1)
        return F.kl_div(student, wanted, reduction="none", log_target=True).sum(dim=-1) * temperature**2

    def metric(self) -> Accuracy:
        """Top-1 accuracy."""
        return Accuracy()

    def smoothed(self, amount: float) -> Classification:
        """Labels mixed with the uniform distribution."""
        return Classification(amount)


tasks.register("classification")(Classification())
