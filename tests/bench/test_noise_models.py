"""Networks without training: random weights, quantized on noise, written as `maqee compress` writes a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import maqee
from maqee.bench.noise_models import (
    SPREAD,
    asked_settings,
    float_network,
    quantize_on_noise,
    same_shape,
    write_run,
)
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel
from maqee.quant import Bits, QuantSettings
from maqee.runs import is_compressed
from tests.helpers import max_difference
from tests.runtime.makers import segmentation_model, small_model, write_trained_run

CPU = torch.device("cpu")


def test_options_become_settings() -> None:
    assert asked_settings("W4A8", "8/8", None, True) == QuantSettings(
        weight_bits=4, act_bits=8, patch=Bits(8, 8), common_steps=True
    )
    assert asked_settings("W3A3", None, "6/6", False).classifier == Bits(6, 6)
    with pytest.raises(MaqeeError, match="bits: 'four' must be like W4A4"):
        asked_settings("four", None, None, False)


def test_a_run_that_is_loaded_as_a_user_would(tmp_path: Path) -> None:
    """What is written runs as what was fitted, never stops, and says what it costs."""
    network = float_network("test-vit", "lgvit", 0)
    quantized = quantize_on_noise(network, "erq", asked_settings("W4A4", "8/8", None, True), CPU)
    folder = write_run(quantized, tmp_path / "run")
    assert is_compressed(folder)
    ready = maqee.load(folder)
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        expected = quantized.model(images)
    decision = ready.run(images)
    assert max_difference(decision.output, expected) < 1e-4
    assert decision.exit.tolist() == [network.num_exits] * 3
    assert (ready.plan.method, ready.plan.got.mean_exit, ready.plan.bits.patch) == ("erq", 4.0, (8, 8))
    cost = maqee.cost("test-vit", weight_bits=4, act_bits=4, exits="lgvit", patch=Bits(8, 8))
    assert ready.plan.got.bops == cost.bops_without_heads  # its plan closes all exits


def test_random_weights_and_stored_ones(tmp_path: Path) -> None:
    one, same, other = (float_network("test-vit", "mlp", seed).state_dict() for seed in (0, 0, 1))
    name = "backbone.blocks.0.attn.qkv.weight"
    assert torch.equal(one[name], same[name])
    assert not torch.equal(one[name], other[name])
    assert float(one[name].std()) == pytest.approx(SPREAD, rel=0.1)
    stored = float_network(str(write_trained_run(tmp_path / "run", small_model())), "mlp", 0)
    assert torch.equal(stored.state_dict()[name], small_model().state_dict()[name])


@pytest.mark.parametrize("early_heads", [True, False])
def test_the_same_shape(early_heads: bool) -> None:
    """A compressed network has no float weights to compare with; one of its shape takes as long."""
    for network in (small_model(), segmentation_model()):
        quantized = quantize_on_noise(network, "rtn", QuantSettings(), CPU).model
        assert isinstance(quantized, EarlyExitModel)
        made = same_shape(quantized, early_heads)
        assert made.final_kind == network.final_kind
        assert made.positions == (network.positions if early_heads else ())
        wanted = {name: value.shape for name, value in network.state_dict().items()}
        shapes = {name: value.shape for name, value in made.state_dict().items() if name.startswith("backbone.")}
        assert shapes == {name: shape for name, shape in wanted.items() if name.startswith("backbone.")}
        config = network.backbone.config
        images = torch.zeros(1, config.channels, *config.image_size)
        with torch.no_grad():
            assert made(images).shape == network(images).shape
