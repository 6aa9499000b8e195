"""Learning rates, parameter groups and the moving average."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from maqee.exits import add_exits
from maqee.models import load_backbone
from maqee.tasks import Classification
from maqee.training.ema import Ema
from maqee.training.optimizer import has_decay, learning_rate, make_optimizer, peak_rate, set_rate
from maqee.training.recipe import StageSection
from maqee.training.stages import Joint

SETTINGS = StageSection(kind="joint", epochs=1, lr=1e-3, head_lr=1e-2, layer_decay=0.5, weight_decay=0.1)


def test_schedule_by_hand() -> None:
    assert [learning_rate(step, 10, 3) for step in range(3)] == [0.25, 0.5, 0.75]
    assert learning_rate(3, 10, 3) == 1.0
    assert learning_rate(10, 10, 3) == pytest.approx(0.0)


@given(steps=st.integers(1, 500), warmup=st.integers(0, 50))
def test_schedule_rises_then_falls(steps: int, warmup: int) -> None:
    warmup = min(warmup, steps - 1)
    rates = [learning_rate(step, steps, warmup) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    assert rates[: warmup + 1] == sorted(rates[: warmup + 1])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.heads.0.readout.linear.weight", 1e-2),
        ("model.heads.1.block.attn.qkv.weight", 1e-2),
        ("model.backbone.head.linear.weight", 1e-2),
        ("model.head.linear.bias", 1e-2),
        ("model.backbone.norm.weight", 1e-3),
        ("model.backbone.blocks.3.mlp.fc1.weight", 1e-3 * 0.5),
        ("model.backbone.blocks.0.norm1.bias", 1e-3 * 0.5**4),
        ("model.backbone.embedding.position", 1e-3 * 0.5**5),
        ("model.backbone.merges.3.reduction.weight", 1e-3 * 0.5**2),
    ],
)
def test_peak_rates_of_a_four_block_model(name: str, expected: float) -> None:
    assert peak_rate(name, SETTINGS, depth=4) == pytest.approx(expected)


def test_every_parameter_is_in_one_group_and_only_matrices_decay() -> None:
    stage = Joint(add_exits(load_backbone("test-vit"), "lgvit"), Classification())
    optimizer = make_optimizer(stage.named_parameters(), SETTINGS, 4, torch.device("cpu"))
    grouped = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in stage.parameters())
    decaying = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    for name, parameter in stage.named_parameters():
        assert (id(parameter) in decaying) == has_decay(name, parameter), name
    assert not has_decay("model.backbone.embedding.position", stage.exits.backbone.embedding.position)  # type: ignore[arg-type]
    set_rate(optimizer, 0.5)
    assert all(group["lr"] == 0.5 * group["peak"] for group in optimizer.param_groups)


def test_a_factor_multiplies_the_peak_rate_by_name() -> None:
    """Rate and decay of everything else stay; at half of the schedule both rates are halved."""
    named = {name: nn.Parameter(torch.ones(2)) for name in ("model.a.bias", "model.a.gain", "model.heads.0.gain")}
    optimizer = make_optimizer(
        named.items(), SETTINGS, 4, torch.device("cpu"), lambda name: 3.0 if name.endswith(".gain") else 1.0
    )
    set_rate(optimizer, 0.5)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert [rates[id(p)] for p in named.values()] == pytest.approx([0.5e-3, 1.5e-3, 1.5e-2])


def test_ema_follows_by_hand() -> None:
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 0.0)
    ema = Ema(module, decay=0.5)
    nn.init.constant_(module.weight, 1.0)
    ema.update()  # first decay is min(0.5, 1/10) = 0.1
    assert ema.state()["weight"].item() == pytest.approx(0.9)
    nn.init.constant_(module.weight, 2.0)
    ema.update()  # then 2/11
    assert ema.state()["weight"].item() == pytest.approx(0.9 * 2 / 11 + 2 * 9 / 11)
