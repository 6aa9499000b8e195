"""What each kind of training does with a batch. A stage is a module whose forward is the loss.

That shape is what torch.compile, distributed wrappers and a readable loop all want: they see one module, one loss.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.exits.lgvit import GlobalHead, LgvitHead, LocalHead, pick
from maqee.models import Backbone
from maqee.registry import Registry
from maqee.tasks import Task
from maqee.training import exit_losses as losses
from maqee.training.teacher import Lesson


class Stage(nn.Module):
    """Base class.

    Attributes:
        needs_exits: whether the model must have exits before the stage begins.
        trains_backbone: whether the backbone learns or is frozen.
        has_lessons: whether full depth may learn from a teacher too.
    """

    needs_exits = True
    trains_backbone = True
    has_lessons = False

    def __init__(self, model: Backbone | EarlyExitModel, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task

    @property
    def exits(self) -> EarlyExitModel:
        """The model, known to have exits."""
        assert isinstance(self.model, EarlyExitModel)
        return self.model

    def forward(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss to minimise and its pieces for the log."""
        raise NotImplementedError

    def form(self, step: int) -> int:
        """Which computation a step is: steps of the same form differ in their numbers alone."""
        return 0

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that the stage changes."""
        for name, parameter in self.named_parameters():
            if self.trains_backbone or name.startswith("model.heads."):
                yield name, parameter

    def rate_factor(self, name: str) -> float:
        """Factor on the learning rate of a parameter."""
        return 1.0

    def exit_losses(self, outputs: list[Tensor], targets: Tensor) -> list[Tensor]:
        """Mean task loss of every exit and of the final output."""
        return [self.task.loss(output, targets).mean() for output in outputs]

    def named(self, values: list[Tensor]) -> dict[str, Tensor]:
        """Losses under the blocks they belong to."""
        return {f"loss@{block}": value.detach() for block, value in zip(self.exits.exit_blocks, values, strict=False)}

    def named_final(self, value: Tensor) -> dict[str, Tensor]:
        """The loss at full depth under its block."""
        return {f"loss@{self.exits.backbone.depth}": value.detach()}


def full_depth_alone(step: int) -> bool:
    """Whether a step of LGViT's alternation trains full depth only: every other one, from the first on."""
    return step % 2 == 0


stages: Registry[type[Stage]] = Registry("training stage")


@stages.register("finetune")
class Finetune(Stage):
    """The network at full depth on the task; early exits, if there are any, are left alone.

    Args:
        model: with exits or without.
        task: what is learnt.
        lesson: another network to learn from, too.
    """

    needs_exits = False
    has_lessons = True

    def __init__(self, model: Backbone | EarlyExitModel, task: Task, lesson: Lesson | None = None) -> None:
        super().__init__(model, task)
        self.lesson = lesson

    def forward(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Task loss at full depth, or a mean of it and imitation."""
        output = self.model(images)
        value = self.task.loss(output, targets).mean()
        return value if self.lesson is None else self.lesson.loss(self.task, value, output, images), {}

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Everything but the heads of early exits."""
        early = self.model.num_exits if isinstance(self.model, EarlyExitModel) else 0
        others = tuple(f"model.heads.{index}." for index in range(early))
        for name, parameter in self.named_parameters():
            if not name.startswith(others):
                yield name, parameter


@stages.register("classifier-wise")
class ClassifierWise(Stage):
    """ViT-EE's way: the backbone is frozen and every head learns alone. Works for any kind of head."""

    trains_backbone = False

    def forward(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Sum of the heads' task losses; no head influences another."""
        model = self.exits
        blocks = model.exit_blocks[: len(model.heads)]  # with full depth where a head of its own ends the model
        with torch.no_grad():
            tokens = _tokens_at(model, images, tuple(range(1, blocks[-1] + 1)))
        seen = [tokens[number] for number in sorted(tokens)]
        outputs = [model.predict(index, seen[:block]) for index, block in enumerate(blocks)]
        values = self.exit_losses(outputs, targets)
        return torch.stack(values).sum(), self.named(values)


@stages.register("joint")
class Joint(Stage):
    """LGViT's first stage: everything learns; steps alternate between the final loss and the depth-weighted sum.

    Args:
        model: a model with exits.
        task: what is learnt.
        distillation: share of each exit's loss that is imitation of the final output (LGViT: 0).
        lesson: another network for full depth to learn from, too (LGViT: none).
    """

    has_lessons = True

    def __init__(
        self,
        model: Backbone | EarlyExitModel,
        task: Task,
        distillation: float = 0.0,
        lesson: Lesson | None = None,
    ) -> None:
        super().__init__(model, task)
        self.distillation, self.lesson = distillation, lesson

    def form(self, step: int) -> int:
        """Full depth alone, or everything."""
        return int(full_depth_alone(step))

    def forward(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Even steps: final loss only. Odd steps: all exits, the deeper the heavier."""
        alone = bool(self.form(step))
        outputs = self.exits.forward_all(images, only_final=alone).outputs
        *early, final = self.exit_losses(outputs, targets)
        if self.lesson is not None:
            final = self.lesson.loss(self.task, final, outputs[-1], images)
        if alone:
            return final, self.named_final(final)
        if self.distillation:
            teacher = outputs[-1].detach()
            for index, output in enumerate(outputs[:-1]):
                imitation = self.task.distillation(output, teacher, losses.TEMPERATURE).mean()
                early[index] = (1 - self.distillation) * early[index] + self.distillation * imitation
        total = losses.depth_weighted(early, final, self.exits.positions, self.exits.backbone.depth)
        return total, self.named([*early, final])


@stages.register("lgvit-heads")
class LgvitHeads(Stage):
    """LGViT's second stage: the backbone is frozen; heads learn from labels, the final output and features.

    Args:
        model: with LGViT's heads.
        task: what is learnt.
        distillation: share of imitating the final output, image by image, beside the labels. With 1 labels do not
            count, which suits few images a class. Left out, it is 0.3 and divided by the number of classes, as LGViT
            has it.
    """

    trains_backbone = False

    def __init__(self, model: Backbone | EarlyExitModel, task: Task, distillation: float | None = None) -> None:
        super().__init__(model, task)
        self.distillation = distillation
        for kind, head in zip(self.exits.kinds, self.exits.heads, strict=False):  # a head at the end may be another
            if not isinstance(head, LgvitHead):
                raise MaqeeError(f"The stage 'lgvit-heads' cannot train {kind!r} heads: choose 'classifier-wise'.")

    def forward(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Prediction loss + 0.01 x heterogeneous + 0.01 x homogeneous distillation."""
        model = self.exits
        with torch.no_grad():
            tokens = _tokens_at(model, images, (*model.positions, model.backbone.depth))
            last = tokens[model.backbone.depth]
            teacher = model.backbone.finish(last)
            last_patches = model.backbone.norm(last)[:, model.backbone.token_shape(1).prefix_tokens :]
        features: dict[int, Tensor] = {}
        values: list[Tensor] = []
        for index, block in enumerate(model.positions):
            head = model.heads[index]
            assert isinstance(head, LgvitHead), "the stage 'lgvit-heads' needs LGViT heads"
            output, features[index] = head.with_features(tokens[block])
            values.append(self._prediction_loss(output, targets, teacher))
        prediction = torch.stack(values).sum()
        hetero = self._imitate_backbone(features, last_patches)
        homo = self._imitate_each_other(features)
        total = prediction + losses.FEATURE_WEIGHT * (hetero + homo)
        return total, self.named(values) | {"hetero": hetero.detach(), "homo": homo.detach()}

    def _prediction_loss(self, output: Tensor, targets: Tensor, teacher: Tensor) -> Tensor:
        hard, share = self.task.loss(output, targets).mean(), self.distillation
        if share is None:
            return losses.HARD_SHARE * hard + losses.SOFT_SHARE * losses.soft_target_loss(output, teacher)
        return (1 - share) * hard + share * self.task.distillation(output, teacher, losses.TEMPERATURE).mean()

    def _imitate_backbone(self, features: dict[int, Tensor], last: Tensor) -> Tensor:
        """First and last head of each kind imitate the last block, where widths and grids agree (not in Swin)."""
        total = last.new_zeros(())
        for group in (self._indices(LocalHead), self._indices(GlobalHead)):
            for index in dict.fromkeys(group[:1] + group[-1:]):
                head = self.exits.heads[index]
                grid = self.exits.backbone.token_shape(self.exits.positions[index]).grid
                if last.shape[1] != grid[0] * grid[1] or last.shape[2] != features[index].shape[2]:
                    continue
                teacher = pick(last, grid, head.stride) if isinstance(head, GlobalHead) else last
                total = total + losses.imitate_backbone(features[index], teacher)
        return total

    def _imitate_each_other(self, features: dict[int, Tensor]) -> Tensor:
        """Every head imitates the last of its kind, where widths (and for local heads, grids) agree."""
        total = next(iter(features.values())).new_zeros(())
        for kind, loss in ((LocalHead, losses.imitate_features), (GlobalHead, losses.imitate_gram)):
            *students, teacher = self._indices(kind) or [-1]
            for student in students:
                one, other = features[student], features[teacher].detach()
                same = one.shape == other.shape if kind is LocalHead else one.shape[2] == other.shape[2]
                if same:
                    total = total + loss(one, other)
        return total

    def _indices(self, kind: type[LgvitHead]) -> list[int]:
        return [index for index, head in enumerate(self.exits.heads) if isinstance(head, kind)]


def _tokens_at(model: EarlyExitModel, images: Tensor, blocks: tuple[int, ...]) -> dict[int, Tensor]:
    """Tokens after the wanted blocks; what lies behind the last of them is not run."""
    road = model.backbone.walk(model.backbone.embedding(images), last=max(blocks))
    return {number: x for number, x in road if number in blocks}
