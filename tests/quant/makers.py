"""Quantized miniatures for several tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from maqee.exits import add_exits
from maqee.models import load_backbone
from maqee.quant import Bits, QuantizedModel, QuantSettings, TwinGrid, quantize
from maqee.quant.coded import GridModule, WeightState
from maqee.quant.layer import QuantLayer
from maqee.quant.learner import learning_grid, learning_weights
from maqee.quant.ranges import minmax_grid
from tests.helpers import randomize

EVERYTHING = {"patch": Bits(8, 8), "classifier": Bits(4, 8)}


def pictures(count: int = 4, side: int = 32) -> Tensor:
    """Noise, the same every time."""
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(3))


def quantized(
    preset: str = "test-vit", method: str = "repq", exits: str | None = None, **wanted: Any
) -> QuantizedModel:
    """A fitted miniature with unremarkable weights."""
    model = load_backbone(preset)
    network = model if exits is None else add_exits(model, exits)
    return quantize(randomize(network), pictures(), method, QuantSettings(**wanted))


def layer_behind(norm: nn.LayerNorm, inner: nn.Linear) -> QuantLayer:
    """A layer that a norm feeds."""
    layer = QuantLayer(inner, "layer")
    layer.norm = (norm,)
    return layer


def let_learn(layer: QuantLayer) -> None:
    """As if training had begun, at the weights as they are."""
    state = layer.state()
    assert state is not None
    assert layer.input is not None
    layer.learner, layer.learning_input = learning_weights(state, False), learning_grid(layer.input.grid, False)


def stop_learning(layer: QuantLayer) -> None:
    """As if training had been broken off."""
    layer.learner = layer.learning_input = None


def two_groups(layer: QuantLayer, bits: int = 4) -> WeightState:
    """Weights of a layer with every third column in a group of its own."""
    rows = layer.rows.detach()
    group = (torch.arange(rows.shape[1]) % 3 == 0).to(torch.uint8)
    grids = [minmax_grid(rows[:, group == number], bits) for number in (0, 1)]
    scale, zero = (torch.cat([getattr(grid, part) for grid in grids], dim=1) for part in ("scale", "zero"))
    columns = group.long()
    codes = (torch.round(rows / scale[:, columns]) + zero[:, columns]).clamp(0, 2**bits - 1)
    return WeightState(bits, codes, scale, zero, group, layer.inner.bias)


def give_two_groups(model: QuantizedModel) -> None:
    """Every qkv and fc1 with two groups of columns, as ERQ has it."""
    for name, layer in model.layers.items():
        if name.endswith(("qkv", "fc1")):
            layer.add_state(two_groups(layer))


def give_twin_grids(model: QuantizedModel) -> None:
    """Twin grids behind every GELU and softmax."""
    for name, layer in model.layers.items():
        if name.endswith("fc2"):
            layer.set_input(GridModule(TwinGrid(4, torch.tensor(0.02), torch.tensor(0.16), signed=True)))
    for attend in model.attends.values():
        attend.grids["p"] = GridModule(TwinGrid(4, torch.tensor(2.0**-6), torch.tensor(2.0**-3), signed=False))
