"""A linear layer as several side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maqee.quant.coded import WeightState
from maqee.quant.layer import QuantLayer


@torch.no_grad()
def split_layer(layer: QuantLayer, count: int) -> list[QuantLayer]:
    """Layers with an equal share of the output channels each, in order: put side by side they are the whole layer."""
    if count == 1:
        return [layer]
    weight, bias = layer.weights()
    return [_share(layer, weight, bias, rows) for rows in torch.arange(len(weight)).chunk(count)]


def _share(layer: QuantLayer, weight: Tensor, bias: Tensor | None, rows: Tensor) -> QuantLayer:
    inner = nn.Linear(weight.shape[1], len(rows), bias=bias is not None)
    inner.weight.copy_(weight[rows])
    if bias is not None:
        inner.bias.copy_(bias[rows])
    share = QuantLayer(inner, layer.name, layer.input_bits)
    share.set_input(layer.input)
    if (state := layer.state()) is not None:
        grid = state.scale[rows], state.zero[rows], state.group
        share.add_state(WeightState(state.bits, state.codes[rows], *grid, None if bias is None else bias[rows]))
        share.set_bits(state.bits)
    return share
