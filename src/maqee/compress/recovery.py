"""Self-distillation: a quantized model learns its way back to what it knew before.

The paper trains f_{b,phi}; a hard exit has no gradient and leaves heads that few images reach without any. So all exits
and the final output are trained together on their task loss and on imitation of the frozen full-precision model's final
output (T = 2), each weighted by the share of images that leaves there, though not less than a tenth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from maqee.apq.bits import BlockBits
from maqee.data import ImageSet, Splits
from maqee.exits import EarlyExitModel
from maqee.models.compiling import compile_each
from maqee.quant import QuantizedModel
from maqee.quant.learning import finish_learning, start_learning
from maqee.tasks import Task
from maqee.train.loop import LoopOptions, train_stage
from maqee.train.losses import TEMPERATURE
from maqee.train.recipe import AugmentSection, StageSection
from maqee.train.runner import PlainRunner
from maqee.train.stages import Stage

LEAST_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class RecoverySettings:
    """How a quantized model is trained.

    Attributes:
        batch_size: images of a step.
        lr: peak rate of the weights; the paper's 1e-5 suits its long training.
        warmup: share of the steps.
        weight_decay: of matrices.
        learn_steps: let the steps of grids learn too; off, they stay as they were fitted.
        ema: decay of the averaged weights; 0 is off.
        precision: "bf16" or "fp32".
        compile: use torch.compile.
        augment: how training images are varied.
    """

    batch_size: int = 256
    lr: float = 1e-4
    warmup: float = 0.05
    weight_decay: float = 0.0
    learn_steps: bool = True
    ema: float = 0.0
    precision: str = "fp32"
    compile: bool = False
    augment: AugmentSection = field(default_factory=lambda: AugmentSection(flip=True))


def exit_weights(exit_mass: Sequence[float]) -> list[float]:
    """Shares of the loss: the mass that leaves at each exit, not less than a tenth, made to sum to 1."""
    floored = [max(float(mass), LEAST_SHARE) for mass in exit_mass]
    return [mass / sum(floored) for mass in floored]


class RecoveryStage(Stage):
    """Task loss and imitation of the teacher's final output at every exit."""

    def __init__(self, model: EarlyExitModel, task: Task, teacher: EarlyExitModel, exit_mass: Sequence[float]) -> None:
        super().__init__(model, task)
        self.teacher = (teacher,)  # in a tuple: no part of this module's weights
        self.weights = exit_weights(exit_mass)

    def forward(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """sum_e w_e (loss_e + T^2 KL(teacher || exit e))."""
        with torch.no_grad():
            wanted = self.teacher[0](images)
        outputs = self.exits.forward_all(images).outputs
        values = [
            (self.task.loss(output, targets) + self.task.distillation(output, wanted, TEMPERATURE)).mean()
            for output in outputs
        ]
        total = torch.stack([weight * value for weight, value in zip(self.weights, values, strict=True)]).sum()
        return total, self.named(values)


class Recovery:
    """Trains quantized copies of one model.

    Args:
        teacher: the frozen full-precision model.
        train: training images; calibration and test images are never among them.
        task: what is learnt.
        settings: how.
        seed: of shuffling and augmentation.
        folder: where logs and checkpoints go.
        device: where to train.
    """

    def __init__(
        self,
        teacher: EarlyExitModel,
        train: ImageSet,
        task: Task,
        settings: RecoverySettings,
        seed: int,
        folder: Path,
        device: torch.device,
    ) -> None:
        self.teacher, self.train, self.task = teacher, train, task
        self.settings, self.seed, self.folder, self.device = settings, seed, folder, device
        self.compiled = False

    def __call__(
        self, quantized: QuantizedModel, bits: BlockBits, exit_mass: Sequence[float], steps: int, name: str = "recovery"
    ) -> None:
        """Train at the bits in use for some steps."""
        assert isinstance(quantized.model, EarlyExitModel)
        if self.settings.compile and not self.compiled:
            compile_each(self.teacher.compilable())
            self.compiled = True
        start_learning(quantized, self.settings.learn_steps)
        stage = RecoveryStage(quantized.model, self.task, self.teacher, exit_mass)
        digest = f"{bits} {[round(float(mass), 9) for mass in exit_mass]} {steps} {self.settings} {self.seed}"
        options = LoopOptions(self.folder, digest, self.seed, compile=self.settings.compile)
        runner = PlainRunner(self.settings.precision, self.device)
        train_stage(stage, Splits(self.train, self.train, self.train), self._section(steps), name, runner, options)
        (self.folder / f"{name}.checkpoint.safetensors").unlink(missing_ok=True)
        finish_learning(quantized)

    def _section(self, steps: int) -> StageSection:
        """The training loop's settings; it counts in epochs."""
        settings = self.settings
        size = min(settings.batch_size, len(self.train))
        epochs = steps / (len(self.train) // size)
        return StageSection(
            kind="recovery",
            epochs=epochs,
            batch_size=size,
            lr=settings.lr,
            warmup=settings.warmup * epochs,
            weight_decay=settings.weight_decay,
            ema=settings.ema,
            augment=settings.augment,
        )
