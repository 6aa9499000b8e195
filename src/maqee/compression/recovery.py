"""Self-distillation: a quantized model learns its way back to what it knew before.

The paper trains f_{b,phi}; a hard exit has no gradient and leaves heads that few images reach without any. So all exits
and the final output are trained together on their task loss and on imitation of the frozen full-precision model's final
output (T = 2), each weighted by the share of images that leaves there, though not less than a tenth. What is imitated,
how much labels count and whether full depth has steps of its own can be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from maqee.apq import BitSettings, Budget, Position, SearchResult, SearchState, Step, Trace, policy_figures
from maqee.apq.figures import policy_scores
from maqee.apq.held_out import expected_choice
from maqee.apq.validate import falls_beyond_chance
from maqee.compression.learning_rates import size_factors
from maqee.compression.model_measure import ModelMeasure
from maqee.compression.recovery_settings import MOST_IMAGES, RecoverySettings, usual_lr
from maqee.data import ImageSet, Splits
from maqee.exits import EarlyExitModel
from maqee.models import Backbone
from maqee.models.compiling import compile_each
from maqee.quant import QuantizedModel
from maqee.quant.learning import finish_learning, start_learning
from maqee.tasks import Task
from maqee.training.exit_losses import TEMPERATURE
from maqee.training.recipe import AugmentSection, StageSection
from maqee.training.runner import PlainRunner
from maqee.training.stages import Stage, full_depth_alone
from maqee.training.training_loop import LoopOptions, train_stage

BEFORE, AFTER = "before-recovery", "after-recovery"  # names of snapshots
LEAST_SHARE = 0.1
MIRRORED = AugmentSection(flip=True)
ATTENTION_AT_ONCE = 4 * MOST_IMAGES * 197**2  # attention weights of a head that a step keeps for its gradient


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
    """Task loss and imitation of the teacher at every exit.

    Args:
        model: the quantized model.
        task: what is learnt.
        teacher: the full-precision model; run as it is, so it must be in evaluation mode.
        weights: of the exits and, last, of full depth.
        settings: what is imitated, how much labels count, and whether full depth has steps of its own.
    """

    def __init__(
        self,
        model: EarlyExitModel,
        task: Task,
        teacher: EarlyExitModel,
        weights: Sequence[float],
        settings: RecoverySettings | None = None,
    ) -> None:
        super().__init__(model, task)
        self.teacher = (teacher,)  # in a tuple: no part of this module's weights
        self.weights = list(weights)
        self.settings = settings or RecoverySettings()
        self.factors = size_factors(self) if self.settings.lr_by_size else {}

    def form(self, step: int) -> int:
        """Full depth alone, where it has steps of its own, or everything."""
        return int(self.settings.alternate and full_depth_alone(step))

    def forward(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """sum_e w_e (task_loss x loss_e + T^2 KL(teacher || exit e)); or full depth alone, with weight 1."""
        alone = bool(self.form(step))
        early = self.settings.teacher != "full" and not alone
        with torch.no_grad():
            wanted = self.teacher[0].forward_all(images, only_final=not early).outputs
        if self.settings.detached and not alone:
            outputs = self._detached_outputs(images)
        else:
            outputs = self.exits.forward_all(images, only_final=alone).outputs
        values = [
            self._exit_loss(output, targets, wanted[index if early else -1], wanted[-1])
            for index, output in enumerate(outputs)
        ]
        if alone:
            return values[-1], self.named_final(values[-1])
        total = torch.stack([weight * value for weight, value in zip(self.weights, values, strict=True)]).sum()
        return total, self.named(values)

    def _detached_outputs(self, images: Tensor) -> list[Tensor]:
        """Every exit's output; gradients of early ones end at their heads."""
        final, blocks = self.exits.forward_all(images, blocks=True, only_final=True)
        seen = [tokens.detach() for tokens in blocks]
        early = [self.exits.predict(index, seen[:block]) for index, block in enumerate(self.exits.positions)]
        return [*early, *final]

    def rate_factor(self, name: str) -> float:
        """Small weights learn slowly; steps of grids, whose size does not matter, may have a rate of their own."""
        return self.settings.step_lr if name.endswith(".gain") else self.factors.get(name, 1.0)

    def _exit_loss(self, output: Tensor, targets: Tensor, same: Tensor, final: Tensor) -> Tensor:
        """Labels and imitation, as a mean over the batch; `same` and `final` are outputs of the teacher."""
        value = self.task.distillation(output, same, TEMPERATURE)  # (batch,)
        if self.settings.teacher == "both" and same is not final:
            value = (value + self.task.distillation(output, final, TEMPERATURE)) / 2
        if self.settings.task_loss:
            value = self.settings.task_loss * self.task.loss(output, targets) + value
        return value.mean()


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
        stage = RecoveryStage(quantized.model, self.task, self.teacher.eval(), weights, self.settings)
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
            lr=settings.lr or usual_lr(size),
            warmup=settings.warmup * epochs,
            weight_decay=settings.weight_decay,
            ema=settings.ema,
            drop_path=settings.drop_path,
            augment=settings.augment or MIRRORED,
        )


def recover_and_choose(
    measure: ModelMeasure, recovery: Recovery, result: SearchResult, budget: Budget, steps: int
) -> SearchResult:
    """Train, measure again, and keep the outcome; where a cost is given, not if it is worse.

    Whether the budget is met is for the caller to look at: what was trained is kept in any case. Confidences of the
    model before training are of no use any more, so thresholds are searched from the start. Only the widths of the
    best position are kept from here on.
    """
    best, state = result.best, result.state
    measure.quantized.set_widths(best.bits)
    measure.quantized.settle()
    if measure.has_snapshot(AFTER):  # training was over when the last call was stopped
        measure.restore(AFTER)
    else:
        measure.snapshot(BEFORE)
        recovery(measure.quantized, best.bits, best.figures.exit_mass, steps)
        measure.snapshot(AFTER)
    trace = measure.trace(best.bits)
    target = target_after_training(budget, state, trace)
    choice = expected_choice(trace, target, state.scales, state.options, best.thresholds)
    found, figures = choice.found, policy_figures(trace, choice.found.thresholds)
    position = Position(trace.bits, found.thresholds, found.excess, found.objective, figures, AFTER)
    step, folds = Step("recovery", position, True, position.excess, position.objective), choice.outcomes
    if target == state.target and not target.asks_for_metric and _is_worse(result, trace, position):
        measure.restore(BEFORE)
        trace, position, folds = measure.trace(best.bits), best, state.folds
        step = replace(step, accepted=False, best_excess=best.excess, best_objective=best.objective)
    state = replace(
        state, budget=budget, target=target, best=position, now=position, history=(*state.history, step), folds=folds
    )
    return SearchResult(position, state, trace)


def _is_worse(before: SearchResult, trace: Trace, position: Position) -> bool:
    """Whether training has made a plan worse: by J, where that is the objective, else by more than chance can do."""
    best = before.best
    if before.state.options.objective == "paper":
        return not position.beats(best)
    if position.excess != best.excess:
        return position.excess > best.excess
    scores = policy_scores(before.trace, best.thresholds), policy_scores(trace, position.thresholds)
    return falls_beyond_chance(*scores)


def target_after_training(budget: Budget, state: SearchState, trace: Trace) -> Budget:
    """What a trained model must keep to: a cost as before; a drop from what the quantized model can reach, now."""
    if state.target.max_cost is not None or state.options.objective == "paper":
        return state.target
    return budget.or_usual(state.options).resolved(trace.float_metric, trace.full_metric)
