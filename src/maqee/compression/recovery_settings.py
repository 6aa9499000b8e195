"""How a quantized model is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from maqee.device import check_precision
from maqee.errors import MaqeeError
from maqee.training.recipe import AugmentSection

MOST_IMAGES = 256  # of a step
USUAL_LR = 5e-4  # for so many; docs/results.md has the comparison


def usual_lr(batch_size: int) -> float:
    """The learning rate if nobody says: as the square root of the batch, which keeps the noise of Adam's steps alike.

    Example:
        >>> usual_lr(256), usual_lr(64)
        (0.0005, 0.00025)
    """
    return USUAL_LR * math.sqrt(batch_size / MOST_IMAGES)


@dataclass(frozen=True, kw_only=True)
class RecoverySettings:
    """How a quantized model is trained.

    Attributes:
        batch_size: images of a step; left out, 256, or fewer where images are large (`training_batch`).
        lr: peak rate of the weights; left out, 5e-4 for 256 images a step and less for fewer (`usual_lr`). The paper's
            1e-5 suits its long training.
        lr_by_size: lower the rate of weights that are smaller than usual, in proportion (`size_factors`); off, all have
            the same, as in the paper.
        warmup: share of the steps.
        weight_decay: of matrices.
        drop_path: stochastic depth, as when backbones are trained; 0 is off.
        weights: of the exits in the loss: the "mass" that leaves there, not less than a tenth; or their "depth", as
            LGViT trains them, which does more for full depth.
        alternate: train full depth alone every other step, and everything together at the others, as LGViT does.
        detached: early exits learn from the backbone as it is and do not shape it, so that it serves full depth alone.
        teacher: what an exit imitates of the full-precision model: its output at "full" depth, that of the "same"
            exit, or "both", the mean of the two losses.
        task_loss: weight of the loss on labels beside that of imitation; 0 is imitation alone.
        learn_steps: let the steps of grids learn too; off, they stay as they were fitted.
        step_lr: factor on the learning rate of these steps.
        ema: decay of the averages of everything that learns, which the codes are then made from; 0 is off.
        precision: "bf16" or "fp32".
        compile: use torch.compile.
        augment: how training images are varied; left out, as when the backbone was last trained, and where nobody
            knows that, mirrored at random.
    """

    batch_size: int | None = None
    lr: float | None = None
    lr_by_size: bool = True
    warmup: float = 0.05
    weight_decay: float = 0.0
    drop_path: float = 0.0
    weights: Literal["mass", "depth"] = "mass"
    alternate: bool = False
    detached: bool = False
    teacher: Literal["full", "same", "both"] = "full"
    task_loss: float = 1.0
    learn_steps: bool = True
    step_lr: float = 1.0
    ema: float = 0.0
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    augment: AugmentSection | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise MaqeeError(f"batch_size: {self.batch_size} must be at least 1.")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise MaqeeError(f"lr: {self.lr} must be more than 0.")
        if not 0 <= self.warmup <= 1:
            raise MaqeeError(f"warmup: {self.warmup} must be from 0 to 1, a share of the steps.")
        if not 0 <= self.weight_decay < math.inf:
            raise MaqeeError(f"weight_decay: {self.weight_decay} must be at least 0.")
        for name in ("ema", "drop_path"):
            if not 0 <= getattr(self, name) < 1:
                raise MaqeeError(f"{name}: {getattr(self, name)} must be from 0 to below 1.")
        if self.weights not in ("mass", "depth"):
            raise MaqeeError(f"weights: {self.weights!r} is not one of mass, depth.")
        if self.teacher not in ("full", "same", "both"):
            raise MaqeeError(f"teacher: {self.teacher!r} is not one of full, same, both.")
        if not 0 <= self.task_loss < math.inf:
            raise MaqeeError(f"task_loss: {self.task_loss} must be at least 0.")
        if not 0 < self.step_lr < math.inf:
            raise MaqeeError(f"step_lr: {self.step_lr} must be more than 0; learn_steps=False stops these steps.")
        check_precision(self.precision)
