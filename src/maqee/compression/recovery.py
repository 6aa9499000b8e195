"""Self-distillation: a quantized model learns its way back to what it knew before.

The paper trains f_{b,phi}; a hard exit has no gradient and leaves heads that few images reach without any. So all exits
and the final output are trained together on their task loss and on imitation of the frozen full-precision model's final
output (T = 2), each weighted by the share of images that leaves there, though not less than a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from maqee.apq import BitSettings, Budget, Position, SearchResult, Step, Trace, choose_policy, policy_figures
from maqee.compression.model_measure import ModelMeasure
from maqee.data import ImageSet, Splits
from maqee.device import check_precision
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.models import Backbone
from maqee.models.compiling import compile_each
from maqee.quant import QuantizedModel
from maqee.quant.learning import finish_learning, start_learning
from maqee.tasks import Task
from maqee.training.exit_losses import TEMPERATURE
from maqee.training.recipe import AugmentSection, StageSection
from maqee.training.runner import PlainRunner
from maqee.training.stages import Stage
from maqee.training.training_loop import LoopOptions, train_stage

BEFORE, AFTER = "before-recovery", "after-recovery"  # names of snapshots
LEAST_SHARE = 0.1
MIRRORED = AugmentSection(flip=True)
MOST_IMAGES = 256  # of a step
ATTENTION_AT_ONCE = 4 * MOST_IMAGES * 197**2  # attention weights of a head that a step keeps for its gradient


@dataclass(frozen=True, kw_only=True)
class RecoverySettings:
    """How a quantized model is trained.

    Attributes:
        batch_size: images of a step; left out, 256, or fewer where images are large (`training_batch`).
        lr: peak rate of the weights; the paper's 1e-5 suits its long training.
        warmup: share of the steps.
        weight_decay: of matrices.
        weights: of the exits in the loss: the "mass" that leaves there, not less than a tenth; or their "depth", as
            LGViT trains them, which does more for full depth.
        learn_steps: let the steps of grids learn too; off, they stay as they were fitted.
        ema: decay of the averaged weights; 0 is off.
        precision: "bf16" or "fp32".
        compile: use torch.compile.
        augment: how training images are varied; left out, as when the backbone was last trained, and where nobody
            knows that, mirrored at random.
    """

    batch_size: int | None = None
    lr: float = 1e-4
    warmup: float = 0.05
    weight_decay: float = 0.0
    weights: Literal["mass", "depth"] = "mass"
    learn_steps: bool = True
    ema: float = 0.0
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    augment: AugmentSection | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise MaqeeError(f"batch_size: {self.batch_size} must be at least 1.")
        if not 0 < self.lr < math.inf:
            raise MaqeeError(f"lr: {self.lr} must be more than 0.")
        if not 0 <= self.warmup <= 1:
            raise MaqeeError(f"warmup: {self.warmup} must be from 0 to 1, a share of the steps.")
        if not 0 <= self.weight_decay < math.inf:
            raise MaqeeError(f"weight_decay: {self.weight_decay} must be at least 0.")
        if not 0 <= self.ema < 1:
            raise MaqeeError(f"ema: {self.ema} must be from 0 to below 1.")
        if self.weights not in ("mass", "depth"):
            raise MaqeeError(f"weights: {self.weights!r} is not one of mass, depth.")
        check_precision(self.precision)


def training_batch(backbone: Backbone) -> int:
    """Images of a step if nobody says: a power of two, so that large images do not need much more memory.

    Training keeps the attention weights of every image, which grow with the square of its tokens.
    """
    shape = backbone.token_shape(1)
    fitting = ATTENTION_AT_ONCE // (shape.tokens * (shape.window**2 or shape.tokens))
    return 1 << (max(1, min(MOST_IMAGES, fitting)).bit_length() - 1)


def exit_weights(exit_mass: Sequence[float]) -> list[float]:
    """Shares of the loss: the mass that leaves at each exit, not less than a tenth, made to sum to 1."""
    return shares([max(float(mass), LEAST_SHARE) for mass in exit_mass])


def shares(values: Sequence[float]) -> list[float]:
    """The same proportions with the sum 1."""
    return [value / sum(values) for value in values]


class RecoveryStage(Stage):
    """Task loss and imitation of the teacher's final output at every exit."""

    def __init__(self, model: EarlyExitModel, task: Task, teacher: EarlyExitModel, weights: Sequence[float]) -> None:
        super().__init__(model, task)
        self.teacher = (teacher,)  # in a tuple: no part of this module's weights
        self.weights = list(weights)

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
        seed: random seed of shuffling and augmentation.
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
        self,
        quantized: QuantizedModel,
        bits: BitSettings,
        exit_mass: Sequence[float],
        steps: int,
        name: str = "recovery",
    ) -> None:
        """Train at the bits in use for some steps."""
        assert isinstance(quantized.model, EarlyExitModel)
        if self.settings.compile and not self.compiled:
            compile_each(self.teacher.compilable())
            self.compiled = True
        start_learning(quantized, self.settings.learn_steps)
        by_depth = self.settings.weights == "depth"
        weights = shares(quantized.model.exit_blocks) if by_depth else exit_weights(exit_mass)
        stage = RecoveryStage(quantized.model, self.task, self.teacher, weights)
        digest = f"{bits} {[round(float(mass), 9) for mass in exit_mass]} {steps} {self.settings} {self.seed}"
        options = LoopOptions(self.folder, digest, self.seed, compile=self.settings.compile)
        runner = PlainRunner(self.settings.precision, self.device)
        train_stage(stage, Splits(self.train, self.train, self.train), self._section(steps), name, runner, options)
        (self.folder / f"{name}.checkpoint.safetensors").unlink(missing_ok=True)
        finish_learning(quantized)

    def _section(self, steps: int) -> StageSection:
        """The training loop's settings; it counts in epochs."""
        settings = self.settings
        size = min(settings.batch_size or training_batch(self.teacher.backbone), len(self.train))
        epochs = steps / (len(self.train) // size)
        return StageSection(
            kind="recovery",
            epochs=epochs,
            batch_size=size,
            lr=settings.lr,
            warmup=settings.warmup * epochs,
            weight_decay=settings.weight_decay,
            ema=settings.ema,
            augment=settings.augment or MIRRORED,
        )


def recover_and_choose(
    measure: ModelMeasure, recovery: Recovery, result: SearchResult, budget: Budget, steps: int
) -> SearchResult:
    """Train, measure again, and keep the outcome only if the objective is better for it.

    Whether the budget is met is for the caller to look at: what was trained is kept in any case. Confidences of the
    model before training are of no use any more, so thresholds are searched from the start.
    """
    best, state = result.best, result.state
    measure.quantized.set_widths(best.bits)
    if measure.has_snapshot(AFTER):  # training was over when the last call was stopped
        measure.restore(AFTER)
    else:
        measure.snapshot(BEFORE)
        recovery(measure.quantized, best.bits, best.figures.exit_mass, steps)
        measure.snapshot(AFTER)
    trace = measure.trace(best.bits)
    position = choose_position(trace, result, budget, AFTER)
    step = Step("recovery", position, True, position.excess, position.objective)
    if not budget.asks_for_metric and not position.beats(best):
        measure.restore(BEFORE)
        trace, position = measure.trace(best.bits), best
        step = replace(step, accepted=False, best_excess=best.excess, best_objective=best.objective)
    state = replace(state, budget=budget, best=position, now=position, history=(*state.history, step))
    return SearchResult(position, state, trace)


def choose_position(trace: Trace, result: SearchResult, budget: Budget, weights: str) -> Position:
    """The best policy for a trace, all else as in the search before."""
    options, scales = result.state.options, result.state.scales
    found = choose_policy(trace, budget, scales, options, result.best.thresholds, options.last_search == "exact")
    figures = policy_figures(trace, found.thresholds)
    return Position(trace.bits, found.thresholds, found.excess, found.objective, figures, weights)
