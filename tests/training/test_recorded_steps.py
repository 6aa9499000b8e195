"""Recorded steps train as plain ones do. Without a GPU, a recorder that always writes to the same memory stands in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from maqee.data import open_data
from maqee.exits import add_exits, backbone_of, load_network
from maqee.models import load_backbone
from maqee.tasks import tasks
from maqee.training import training_loop
from maqee.training.recipe import StageSection
from maqee.training.recorded_steps import STEPS_BEFORE, Losses, RecordedSteps, can_be_recorded
from maqee.training.runner import PlainRunner
from maqee.training.stages import Joint
from maqee.training.teacher import Lesson, Teacher
from maqee.training.training_loop import LoopOptions, train_stage
from tests.helpers import FIXTURES


class MemoryRecorder:
    """Replays by running the function again, into the memory of its first results and gradients."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.recordings = self.replays = 0

    def __call__(self, function: Callable[[], Losses]) -> tuple[Callable[[], None], Losses]:
        self.recordings += 1
        loss, parts = function()
        gradients = [parameter.grad for parameter in self.parameters]

        def replay() -> None:
            self.replays += 1
            for parameter in self.parameters:
                parameter.grad = None
            fresh, fresh_parts = function()
            loss.copy_(fresh)
            for name, value in fresh_parts.items():
                parts[name].copy_(value)
            for memory, parameter in zip(gradients, self.parameters, strict=True):
                assert (memory is None) == (parameter.grad is None)
                if memory is not None and parameter.grad is not None:
                    memory.copy_(parameter.grad)

        return replay, (loss, parts)


def weights_after(steps: int, recorded: bool) -> tuple[dict[str, Tensor], list[float], MemoryRecorder]:
    """A few steps of plain gradient descent on a stage that alternates, and the losses on the way."""
    torch.manual_seed(0)
    stage = Joint(add_exits(load_backbone("test-vit"), "lgvit"), tasks["classification"]).train()
    parameters = list(stage.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    recorder = MemoryRecorder(parameters)

    def plain(images: Tensor, targets: Tensor, step: int) -> Losses:
        loss, parts = stage(images, targets, step)
        loss.backward()
        return loss.detach(), parts

    run = RecordedSteps(plain, parameters, stage.form, recorder) if recorded else plain
    losses = []
    for step in range(steps):
        draw = torch.Generator().manual_seed(step)
        loss, parts = run(torch.randn(4, 3, 32, 32, generator=draw), torch.randint(10, (4,), generator=draw), step)
        losses += [float(loss), *(float(value) for value in parts.values())]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return {name: tensor.clone() for name, tensor in stage.state_dict().items()}, losses, recorder


def test_recorded_steps_train_as_plain_ones_do() -> None:
    steps = 2 * STEPS_BEFORE + 5
    expected, plain_losses, _ = weights_after(steps, recorded=False)
    found, losses, recorder = weights_after(steps, recorded=True)
    assert losses == plain_losses
    running = (
        "running_mean",
        "running_var",
        "num_batches_tracked",
    )  # this recorder runs what it records, a GPU does not
    names = [name for name in expected if not name.endswith(running)]
    assert all(torch.equal(found[name], expected[name]) for name in names)
    assert recorder.recordings == 2  # full depth alone, and everything
    assert recorder.replays == 5


def test_parameters_without_a_part_have_no_gradient() -> None:
    stage = Joint(add_exits(load_backbone("test-vit"), "lgvit"), tasks["classification"]).train()
    parameters = dict(stage.named_parameters())
    recorder = MemoryRecorder(list(parameters.values()))

    def plain(images: Tensor, targets: Tensor, step: int) -> Losses:
        loss, parts = stage(images, targets, step)
        loss.backward()
        return loss.detach(), parts

    run = RecordedSteps(plain, list(parameters.values()), stage.form, recorder)
    for step in range(0, 2 * STEPS_BEFORE + 2, 2):  # full depth alone
        stage.zero_grad(set_to_none=True)
        run(torch.randn(2, 3, 32, 32), torch.tensor([0, 1]), step)
    assert recorder.replays
    without = {name for name, parameter in parameters.items() if parameter.grad is None}
    assert without == {name for name in parameters if name.startswith("model.heads.")}


def test_another_shape_is_another_recording() -> None:
    parameter = nn.Parameter(torch.ones(()))
    recorder = MemoryRecorder([parameter])

    def plain(images: Tensor, targets: Tensor, step: int) -> Losses:
        loss = parameter * images.sum() * targets.float().mean()
        loss.backward()
        return loss.detach(), {}

    run = RecordedSteps(plain, [parameter], lambda step: 0, recorder)
    for count in (2, 3):
        for _ in range(STEPS_BEFORE + 2):
            nn.ParameterList([parameter]).zero_grad(set_to_none=True)
            loss, _ = run(torch.full((count, 1), 2.0), torch.full((count,), 3), 0)
            assert float(loss) == 6 * count
            assert parameter.grad is not None
            assert float(parameter.grad) == 2 * count * 3
    assert (recorder.recordings, recorder.replays) == (2, 4)


@pytest.mark.parametrize(
    ("device", "world", "pieces", "on_device", "expected"),
    [
        ("cuda", 1, 1, True, True),
        ("cpu", 1, 1, True, False),
        ("cuda", 2, 1, True, False),
        ("cuda", 1, 4, True, False),
        ("cuda", 1, 1, False, False),
    ],
)
def test_where_steps_can_be_recorded(device: str, world: int, pieces: int, on_device: bool, expected: bool) -> None:
    assert can_be_recorded(torch.device(device), world, pieces, on_device) == expected


def test_detection_asks_the_host() -> None:
    assert [name for name in tasks if not tasks[name].on_device] == ["detection"]


@pytest.mark.parametrize("taught", [False, True])
def test_a_training_on_a_gpu(taught: bool, gpu: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded or not, the same weights come out: stochastic depth, alternation and averages are as without graphs."""
    splits = open_data("digits")
    section = StageSection(kind="joint", epochs=0.6, batch_size=32, lr=1e-3, ema=0.9, drop_path=0.2)
    other = load_network(FIXTURES / "digits")
    larger = replace(backbone_of(other).preprocessing, image_size=(24, 24))  # as the student's images are
    lesson = Lesson(Teacher(other, larger, list(range(10))).to(gpu), 0.7) if taught else None

    def trained(name: str) -> dict[str, Tensor]:
        torch.manual_seed(0)
        backbone = load_backbone("vit-digits", image_size=24)
        stage = Joint(add_exits(backbone, "lgvit"), tasks["classification"], 0.5, lesson)
        options = LoopOptions(tmp_path / name, "", seed=3, compile=True)
        train_stage(stage, splits, section, "joint", PlainRunner("fp32", gpu), options)
        return dict(stage.cpu().state_dict())

    recorded = trained("recorded")
    monkeypatch.setattr(training_loop, "can_be_recorded", lambda *about: False)
    plain = trained("plain")
    for name, expected in plain.items():
        assert torch.allclose(recorded[name], expected, rtol=1e-3, atol=1e-4), name
    assert all(torch.equal(recorded[name], plain[name]) for name in plain if name.endswith("num_batches_tracked"))
