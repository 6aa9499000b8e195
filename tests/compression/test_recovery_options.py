"""What can be chosen about training a quantized model, each choice by hand."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.compression import ModelMeasure, Recovery, RecoverySettings
from maqee.compression.learning_rates import USUAL_SIZE
from maqee.compression.recovery import RecoveryStage
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.models.layers import DropPath
from maqee.quant.learning import start_learning
from maqee.training import training_loop
from maqee.training.ema import Ema
from maqee.training.optimizer import make_optimizer
from maqee.training.recipe import AugmentSection
from tests.compression.makers import TASK, batches_of, digits, make_measure
from tests.helpers import by_block, set_weights

pytestmark = pytest.mark.trains

MASS = (0.5, 0.3, 0.2)
BITS = (3, 4, 3, 4)


def make_recovery(model: EarlyExitModel, folder: Path, **changes: Any) -> Recovery:
    settings = RecoverySettings(**{"batch_size": 64, "lr": 1e-3, "augment": AugmentSection(), **changes})
    return Recovery(model, digits("train"), TASK, settings, 0, folder, torch.device("cpu"))


def imitation(output: Tensor, teacher: Tensor) -> float:
    """4 KL(teacher || output), both at T = 2, mean over the batch."""
    wanted = F.softmax(teacher / 2, dim=-1)
    return float(4 * (wanted * (wanted.log() - F.log_softmax(output / 2, dim=-1))).sum(dim=-1).mean())


class Case:
    """A quantized model, a batch, and what both models say about it."""

    def __init__(self, model: EarlyExitModel) -> None:
        self.measure: ModelMeasure = make_measure(model)
        set_weights(self.measure.quantized, BITS)
        [(self.images, self.targets)] = batches_of(digits("train", 20), model, 20)
        with torch.no_grad():
            self.wanted = model.forward_all(self.images).outputs
            self.outputs = self.measure.model.forward_all(self.images).outputs

    def labels(self, index: int) -> float:
        return float(F.cross_entropy(self.outputs[index], self.targets))

    def loss(self, step: int = 0, **changes: Any) -> tuple[float, dict[str, float]]:
        settings = RecoverySettings(**changes)
        stage = RecoveryStage(self.measure.model, TASK, self.measure.reference, MASS, settings).eval()
        with torch.no_grad():
            total, pieces = stage(self.images, self.targets, step)
        return float(total), {name: float(value) for name, value in pieces.items()}


@pytest.fixture
def case(model: EarlyExitModel) -> Case:
    return Case(model)


# --- the loss --------------------------------------------------------------------------------------------------------


def test_teachers_by_hand(case: Case) -> None:
    full = [imitation(output, case.wanted[-1]) for output in case.outputs]
    same = [imitation(output, wanted) for output, wanted in zip(case.outputs, case.wanted, strict=True)]
    both = [(one + other) / 2 for one, other in zip(full, same, strict=True)]
    assert abs(full[0] - same[0]) > 1e-3  # else this test would not tell them apart
    for teacher, expected in (("full", full), ("same", same), ("both", both)):
        total, pieces = case.loss(teacher=teacher)
        values = [case.labels(index) + value for index, value in enumerate(expected)]
        assert list(pieces) == ["loss@1", "loss@2", "loss@4"]
        assert list(pieces.values()) == pytest.approx(values, rel=1e-4)
        assert total == pytest.approx(sum(w * value for w, value in zip(MASS, values, strict=True)), rel=1e-4)


def test_a_model_imitates_itself_for_nothing(model: EarlyExitModel) -> None:
    """The teacher's copy has no loss of imitation at the same exit; at full depth its early exits have."""
    [(images, targets)] = batches_of(digits("train", 20), model, 20)
    losses = {}
    for teacher in ("same", "both", "full"):
        settings = RecoverySettings(teacher=teacher, task_loss=0.0)
        stage = RecoveryStage(copy.deepcopy(model), TASK, model, MASS, settings).eval()
        with torch.no_grad():
            losses[teacher] = float(stage(images, targets, 0)[0])
    assert losses["same"] == pytest.approx(0.0, abs=1e-5)
    assert losses["both"] == pytest.approx(losses["full"] / 2, rel=1e-4)
    assert losses["full"] > 1e-3


def test_the_weight_of_labels(case: Case) -> None:
    alone = case.loss(task_loss=0.0)[0]
    labels = sum(weight * case.labels(index) for index, weight in enumerate(MASS))
    assert alone == pytest.approx(
        sum(weight * imitation(output, case.wanted[-1]) for weight, output in zip(MASS, case.outputs, strict=True)),
        rel=1e-4,
    )
    for weight in (0.25, 1.0, 3.0):
        assert case.loss(task_loss=weight)[0] == pytest.approx(alone + weight * labels, rel=1e-5)


@pytest.mark.parametrize("teacher", ["full", "same", "both"])
def test_full_depth_alone_every_other_step(case: Case, teacher: str) -> None:
    """Even steps: full depth with weight 1, whatever its share. Odd steps: as without the option."""
    final = case.labels(2) + imitation(case.outputs[-1], case.wanted[-1])
    for step in (0, 2, 10):
        total, pieces = case.loss(step, alternate=True, teacher=teacher)
        assert total == pytest.approx(final, rel=1e-4)
        assert pieces == {"loss@4": pytest.approx(total)}
    assert case.loss(1, alternate=True, teacher=teacher) == case.loss(1, teacher=teacher)
    assert case.loss(0, teacher=teacher) == case.loss(1, teacher=teacher)


def test_detached_exits_do_not_shape_the_backbone(case: Case) -> None:
    """The loss is the same; the backbone's gradient is that of full depth alone, the heads' is as ever."""
    assert case.loss(detached=True) == case.loss()
    start_learning(case.measure.quantized)
    gradients = {}
    for name, settings in (
        ("usual", RecoverySettings()),
        ("detached", RecoverySettings(detached=True)),
        ("alone", RecoverySettings(alternate=True)),
    ):
        stage = RecoveryStage(case.measure.model, TASK, case.measure.reference, MASS, settings).eval()
        stage.zero_grad(set_to_none=True)
        stage(case.images, case.targets, 0)[0].backward()
        gradients[name] = {key: value.grad.clone() for key, value in stage.named_parameters() if value.grad is not None}
    for name, gradient in gradients["detached"].items():
        if name.startswith("model.heads."):
            assert torch.allclose(gradient, gradients["usual"][name], rtol=1e-4, atol=1e-7), name
        else:
            assert torch.allclose(gradient, MASS[-1] * gradients["alone"][name], rtol=1e-3, atol=1e-6), name


def test_what_learns_at_a_step_of_full_depth(case: Case) -> None:
    """Neither heads of early exits nor the teacher, but everything else, the steps of grids included."""
    start_learning(case.measure.quantized)
    settings = RecoverySettings(alternate=True)
    stage = RecoveryStage(case.measure.model, TASK, case.measure.reference, MASS, settings)
    learnt = {}
    for step in (0, 1):
        stage.zero_grad(set_to_none=True)
        stage.train()(case.images, case.targets, step)[0].backward()
        learnt[step] = {name for name, parameter in stage.named_parameters() if parameter.grad is not None}
    every = {name for name, _ in stage.named_parameters()}
    assert learnt[1] == every
    assert learnt[0] == {name for name in every if not name.startswith("model.heads.")}
    assert any(name.endswith(".gain") for name in learnt[0])
    assert all(parameter.grad is None for parameter in case.measure.reference.parameters())


# --- the training ----------------------------------------------------------------------------------------------------


def test_the_teacher_sees_the_same_mixed_images_undisturbed(
    model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mixed and varied images are one tensor for both models; stochastic depth is the student's alone."""
    seen: list[tuple[Tensor, Tensor]] = []
    measure = make_measure(model)
    forward_teacher, forward_student = model.forward_all, measure.model.forward_all
    images: list[Tensor] = []

    def teach(batch: Tensor, **more: Any) -> Any:
        images.append(batch)
        assert not any(module.training for module in model.modules())
        return forward_teacher(batch, **more)

    def learn(batch: Tensor, **more: Any) -> Any:
        seen.append((images.pop(), batch))
        rates = {child.rate for child in measure.model.backbone.modules() if isinstance(child, DropPath)}
        assert rates == {0.25}
        assert all(child.training for child in measure.model.modules())
        return forward_student(batch, **more)

    monkeypatch.setattr(model, "forward_all", teach)
    monkeypatch.setattr(measure.model, "forward_all", learn)
    model.train()  # whoever made the teacher may have left it so
    mixed = AugmentSection(flip=True, mixup=0.4, cutmix=1.0)
    make_recovery(model, tmp_path, drop_path=0.25, augment=mixed)(measure.quantized, by_block((4, 4, 4, 4)), MASS, 3)
    assert len(seen) == 3
    assert all(one is other for one, other in seen)
    for network in (model, measure.model):
        assert {(child.rate, child.training) for child in network.modules() if isinstance(child, DropPath)} == {
            (0.0, False)
        }


def test_averages_are_what_codes_are_made_from(
    model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, biases and learnt steps of every layer, and steps of every input and operand, averaged by hand."""
    kept: list[dict[str, Tensor]] = []

    class Recorded(Ema):
        def __init__(self, module: nn.Module, decay: float) -> None:
            super().__init__(module, decay)
            self.module = module
            self.keep()

        def keep(self) -> None:
            kept.append({name.removeprefix("model."): p.detach().clone() for name, p in self.module.named_parameters()})

        def update(self) -> None:
            super().update()
            self.keep()

    monkeypatch.setattr(training_loop, "Ema", Recorded)
    measure = make_measure(model, method="erq")
    quantized = measure.quantized
    set_weights(quantized, BITS)
    fitted = {name: value.clone() for name, value in quantized.model.state_dict().items()}
    make_recovery(model, tmp_path, ema=0.3)(quantized, by_block(BITS), MASS, 5)
    assert len(kept) == 6
    expected = {name: value.clone() for name, value in kept[0].items()}
    for n, now in enumerate(kept[1:]):  # the decay is min(0.3, (1 + n) / (10 + n)): 0.1, 2/11, 3/12, 4/13, 0.3
        decay = min(0.3, (1 + n) / (10 + n))
        expected = {name: decay * value + (1 - decay) * now[name] for name, value in expected.items()}

    def step_of(scale: str, gain: str) -> Tensor:
        change = torch.exp(10 * expected[gain])
        return fitted[scale] * change

    for name, layer in quantized.layers.items():
        state = layer.state()
        assert state is not None
        place = f"{name}.fitted.4.states.{state.bits}"
        torch.testing.assert_close(layer.inner.weight.detach(), expected[f"{name}.inner.weight"])
        torch.testing.assert_close(state.bias, expected[f"{name}.inner.bias"])
        torch.testing.assert_close(state.scale, step_of(f"{place}.scale", f"{name}.learner.gain"))
        assert torch.equal(state.codes, state.grid().codes(layer.rows).to(torch.uint8))
        assert not torch.equal(state.scale, fitted[f"{place}.scale"])
        if layer.input is not None and layer.input.kind == "uniform":
            torch.testing.assert_close(
                layer.input.scale, step_of(f"{name}.fitted.4.input.scale", f"{name}.learning_input.gain")
            )
    operands = [(name, key, grid) for name, a in quantized.attends.items() for key, grid in a.all_grids().items()]
    uniform = [(name, key, grid) for name, key, grid in operands if grid.kind == "uniform"]
    assert len(uniform) >= 3 * len(quantized.attends) > 0
    for name, key, grid in uniform:
        torch.testing.assert_close(grid.scale, step_of(f"{name}.fitted.4.{key}.scale", f"{name}.learners.{key}.gain"))
    last = kept[-1]
    assert any(not torch.allclose(expected[name], last[name], rtol=1e-6, atol=0) for name in last)


def test_steps_of_grids_have_their_own_rate(
    model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the factor 4, what multiplies steps learns at 4 lr; everything else at lr, or less where weights are small.

    The weights of the first block's second MLP layer are a quarter of the usual: they and their bias learn at lr / 4.
    """
    peaks: dict[str, float] = {}

    def spy(parameters: Iterable[tuple[str, nn.Parameter]], *more: Any) -> torch.optim.AdamW:
        named = list(parameters)
        optimizer = make_optimizer(named, *more)
        by_parameter = {id(p): group["peak"] for group in optimizer.param_groups for p in group["params"]}
        peaks.update({name: by_parameter[id(parameter)] for name, parameter in named})
        return optimizer

    monkeypatch.setattr(training_loop, "make_optimizer", spy)
    measure = make_measure(model)
    set_weights(measure.quantized, BITS)
    small = measure.quantized.layers["backbone.blocks.0.mlp.fc2"]
    for layer in measure.quantized.layers.values():
        layer.trained = True  # so that its weights are taken as they are
        nn.init.constant_(layer.inner.weight, USUAL_SIZE / 4 if layer is small else USUAL_SIZE)
    make_recovery(model, tmp_path, lr=1e-3, step_lr=4.0)(measure.quantized, by_block(BITS), MASS, 1)
    steps = {name for name in peaks if name.endswith(".gain")}
    assert len(steps) > len(measure.quantized.layers)  # of weights and of inputs
    assert {peaks[name] for name in steps} == {4e-3}
    inner = {name: peak for name, peak in peaks.items() if ".inner." in name}
    slow = {name for name, peak in inner.items() if peak == 1e-3 / 4}
    assert slow == {f"model.backbone.blocks.0.mlp.fc2.inner.{part}" for part in ("weight", "bias")}
    assert {peak for name, peak in inner.items() if name not in slow} == {1e-3}
    peaks.clear()
    options = {"lr": 1e-3, "lr_by_size": False}
    make_recovery(model, tmp_path / "equal", **options)(measure.quantized, by_block(BITS), MASS, 1)
    assert set(peaks.values()) == {1e-3}


def test_impossible_values() -> None:
    impossible: list[tuple[str, Any, str]] = [
        ("drop_path", 1.0, "drop_path: 1.0 must be from 0 to below 1."),
        ("teacher", "nobody", "teacher: 'nobody' is not one of full, same, both."),
        ("task_loss", -1.0, "task_loss: -1.0 must be at least 0."),
        ("task_loss", float("nan"), "task_loss: nan must be at least 0."),
        ("step_lr", 0.0, "step_lr: 0.0 must be more than 0; learn_steps=False stops these steps."),
    ]
    for name, value, words in impossible:
        with pytest.raises(MaqeeError) as error:
            RecoverySettings(**{name: value})
        assert str(error.value) == words
