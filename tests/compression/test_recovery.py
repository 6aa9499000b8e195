"""Training a quantized model: where it starts, what it leaves alone, and that it helps."""

from __future__ import annotations

import copy
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from maqee.compression import ModelMeasure, Recovery, RecoverySettings
from maqee.compression.recovery import RecoveryStage, exit_weights
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.quant.learning import finish_learning, start_learning
from maqee.training.recipe import AugmentSection
from tests.compression.makers import TASK, batches_of, digits, make_measure
from tests.helpers import by_block, set_weights

pytestmark = pytest.mark.trains

MASS = (0.5, 0.3, 0.2)
BITS = (3, 4, 3, 4)


def make_recovery(model: EarlyExitModel, folder: Path, **changes: Any) -> Recovery:
    settings = RecoverySettings(**{"batch_size": 64, "lr": 1e-3, "augment": AugmentSection(), **changes})
    return Recovery(model, digits("train"), TASK, settings, 0, folder, torch.device("cpu"))


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]


def stage_loss(measure: ModelMeasure, images: torch.Tensor, targets: torch.Tensor) -> float:
    stage = RecoveryStage(measure.model, TASK, measure.reference, MASS).eval()
    with torch.no_grad():
        return float(stage(images, targets, 0)[0])


def test_weights_by_hand() -> None:
    assert exit_weights((0.5, 0.3, 0.2)) == [0.5, 0.3, 0.2]
    assert exit_weights((0.0, 1.0)) == pytest.approx([0.1 / 1.1, 1 / 1.1])
    assert exit_weights((0.05, 0.05, 0.9)) == pytest.approx([0.1 / 1.1, 0.1 / 1.1, 0.9 / 1.1])


def test_weights_by_depth(model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exits after blocks 1 and 2 of 4: a seventh, two sevenths, four sevenths."""
    from maqee.compression import recovery as recovery_module

    seen: list[list[float]] = []

    class Spy(RecoveryStage):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            seen.append(self.weights)

    monkeypatch.setattr(recovery_module, "RecoveryStage", Spy)
    measure = make_measure(model)
    for weights in ("depth", "mass"):
        make_recovery(model, tmp_path, weights=weights)(measure.quantized, by_block((4, 4, 4, 4)), (0.0, 1.0, 0.0), 1)
    assert seen[0] == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert seen[1] == pytest.approx([0.1 / 1.2, 1 / 1.2, 0.1 / 1.2])
    with pytest.raises(MaqeeError, match="mass, depth"):
        RecoverySettings(weights="width")  # type: ignore[arg-type]


@given(masses=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_weights_sum_to_one_and_leave_nobody_out(masses: list[float]) -> None:
    found = exit_weights(masses)
    assert sum(found) == pytest.approx(1.0)
    assert min(found) >= 0.1 / sum(max(mass, 0.1) for mass in masses) - 1e-12
    assert [a <= b for a, b in pairwise(found)] == [max(a, 0.1) <= max(b, 0.1) for a, b in pairwise(masses)]


def test_the_loss_by_hand(model: EarlyExitModel) -> None:
    """Sum over exits of w (cross-entropy + 4 KL(teacher at T = 2 || exit at T = 2)), means over the batch."""
    measure = make_measure(model)
    set_weights(measure.quantized, BITS)
    [(images, targets)] = batches_of(digits("train", 20), model, 20)
    with torch.no_grad():
        wanted = F.softmax(model(images) / 2, dim=-1)
        total = 0.0
        for weight, output in zip(MASS, measure.model.forward_all(images).outputs, strict=True):
            kl = (wanted * (wanted.log() - F.log_softmax(output / 2, dim=-1))).sum(dim=-1).mean()
            total += weight * float(F.cross_entropy(output, targets) + 4 * kl)
    assert stage_loss(measure, images, targets) == pytest.approx(total, rel=1e-5)


def test_the_first_loss_is_the_quantized_models(model: EarlyExitModel, tmp_path: Path) -> None:
    measure = make_measure(model, method="erq")
    set_weights(measure.quantized, BITS)
    [(images, targets)] = batches_of(digits("train", 64), model, 64)
    before = stage_loss(measure, images, targets)
    start_learning(measure.quantized)
    assert stage_loss(measure, images, targets) == pytest.approx(before, rel=1e-3)


def test_training_lowers_the_loss(model: EarlyExitModel, tmp_path: Path) -> None:
    measure, teacher = make_measure(model), copy.deepcopy(model.state_dict())
    bits = (3, 3, 3, 3)
    set_weights(measure.quantized, bits)
    [(images, targets)] = batches_of(digits("train", 200), model, 200)
    before, noise = stage_loss(measure, images, targets), measure.trace(by_block(bits)).noise.mean()
    make_recovery(model, tmp_path)(measure.quantized, by_block(bits), MASS, 41)
    after, trace = stage_loss(measure, images, targets), measure.trace(by_block(bits))
    assert after < 0.95 * before
    assert np.isfinite(noise)
    assert len(losses(tmp_path)) == 3  # steps 0, 20 and 40
    assert all(torch.equal(value, teacher[name]) for name, value in model.state_dict().items())
    assert not list(tmp_path.glob("*.checkpoint.safetensors"))
    assert trace.bits == measure.quantized.bit_settings == by_block(bits)
    assert not any(layer.learning for layer in measure.quantized.layers.values())


def test_codes_compute_what_was_learnt(model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer by layer from equal inputs: in a whole run, one number tied between two codes moves all behind it."""
    from maqee.compression import recovery as recovery_module

    measure = make_measure(model, method="erq")
    [(images, _)] = batches_of(digits("test", 100), model, 100)
    layers = measure.quantized.layers
    seen: dict[str, tuple[torch.Tensor, ...]] = {}
    apart: dict[str, torch.Tensor] = {}

    def spy(quantized: Any) -> None:
        measure.model.eval()
        hooks = [
            layer.register_forward_hook(lambda _, inputs, output, name=name: seen.update({name: (*inputs, output)}))
            for name, layer in layers.items()
        ]
        with torch.no_grad():
            measure.model.forward_all(images)
        for hook in hooks:
            hook.remove()
        finish_learning(quantized)
        with torch.no_grad():
            for name, (*inputs, wanted) in seen.items():
                difference = (layers[name](*inputs) - wanted).abs() / wanted.abs().max()
                apart[name] = difference.flatten(0, -2).amax(dim=1)  # of every row

    monkeypatch.setattr(recovery_module, "finish_learning", spy)
    set_weights(measure.quantized, BITS)
    make_recovery(model, tmp_path)(measure.quantized, by_block(BITS), MASS, 5)
    assert set(apart) == set(layers)
    for name, rows in apart.items():
        assert float((rows > 1e-5).float().mean()) <= 0.01, name  # ties are all that may differ


@pytest.mark.parametrize("learn_steps", [True, False])
def test_steps_of_grids(model: EarlyExitModel, tmp_path: Path, learn_steps: bool) -> None:
    measure = make_measure(model)
    quantized = measure.quantized
    set_weights(quantized, BITS)

    def scales() -> list[torch.Tensor]:
        found = [layer.state().scale.clone() for layer in quantized.layers.values()]  # type: ignore[union-attr]
        return found + [layer.input.scale.clone() for layer in quantized.layers.values() if layer.input is not None]

    before = scales()
    make_recovery(model, tmp_path, learn_steps=learn_steps)(quantized, by_block(BITS), MASS, 4)
    moved = [not torch.equal(one, two) for one, two in zip(before, scales(), strict=True)]
    assert all(moved) if learn_steps else not any(moved)


def test_the_number_of_steps(model: EarlyExitModel, tmp_path: Path) -> None:
    """The loop counts in epochs; what was asked for is what is done, whatever the batch."""
    for steps in (1, 3, 17):
        for size in (50, 64, 1077, 5000):
            section = make_recovery(model, tmp_path, batch_size=size)._section(steps)
            per_epoch = 1077 // section.batch_size
            assert round(section.epochs * per_epoch) == steps
            assert section.warmup <= section.epochs
    assert math.isclose(make_recovery(model, tmp_path, warmup=0.5)._section(16).warmup, 0.5)


def test_equal_trainings_end_alike(model: EarlyExitModel, tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        measure = make_measure(model)
        set_weights(measure.quantized, BITS)
        make_recovery(model, tmp_path / name, ema=0.9)(measure.quantized, by_block(BITS), MASS, 3)
        found.append({key: value.clone() for key, value in measure.model.state_dict().items()})
    assert all(torch.equal(value, found[1][key]) for key, value in found[0].items())
