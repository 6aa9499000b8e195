"""Which quantized layers and attention products the kernels can compute, and why not where they cannot."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule, WeightState
from maqee.quant.layer import QuantLayer
from maqee.runtime.kernels.attention import Probabilities
from maqee.runtime.kernels.stored import StoredGrid, StoredWeights, prepare_weights

EXACT_IN_HALF, EXACT_IN_SINGLE = 2**11, 2**24  # whole numbers up to here are exact in float16 and float32


class Operands(NamedTuple):
    """Grids of an attention product's operands."""

    q: StoredGrid
    k: StoredGrid
    v: StoredGrid
    p: Probabilities


def store_layer(layer: nn.Module) -> StoredWeights | str:
    """A layer as kernels read it, or a few words on why it cannot be read."""
    if not isinstance(layer, QuantLayer) or not layer.enabled:
        return "is not quantized"
    state = layer.state()
    if state is None:
        return "has float weights"
    if layer.input is None:
        return "has a float input"
    if layer.learning:
        return "is learning"
    if isinstance(layer.inner, nn.Conv2d) and not cuts_patches(layer.inner):
        return "is a convolution"
    if (grid := StoredGrid.of(layer.input.grid)) is None:
        return f"has an input with {_described(layer.input)}"
    return prepare_weights(state, grid) or "has sums that int32 does not hold"


def store_operands(attend: nn.Module) -> Operands | str:
    """The grids of an attention product, or a few words on why they are of no use."""
    if not isinstance(attend, QuantAttend) or not attend.enabled:
        return "is not quantized"
    grids = attend.all_grids()
    if missing := [name for name in QuantAttend.OPERANDS if name not in grids]:
        return f"has a float operand {missing[0]}"
    stored = [StoredGrid.of(grids[name].grid) for name in ("q", "k", "v")]
    for name, grid in zip(("q", "k", "v"), stored, strict=True):
        if grid is None:
            return f"has an operand {name} with {_described(grids[name])}"
        if grid.largest > EXACT_IN_HALF:
            return f"has an operand {name} that is far from zero"
    if (p := Probabilities.of(grids["p"].grid)) is None:
        return f"has probabilities with {_described(grids['p'])}"
    q, k, v = (grid for grid in stored if grid is not None)
    return Operands(q, k, v, p)


def store_depthwise(layer: nn.Module | None) -> tuple[WeightState, StoredGrid] | str:
    """The weights of a depthwise 3x3 convolution and its input's grid, or a few words on why they are of no use."""
    if not isinstance(layer, QuantLayer) or not layer.enabled:
        return "is not quantized"
    state, module = layer.state(), layer.input
    if state is None or module is None:
        return "has float weights or a float input"
    if (grid := StoredGrid.of(module.grid)) is None:
        return f"has an input with {_described(module)}"
    largest = int((state.codes.to(torch.int64) - state.zero).abs().sum(dim=1).max()) * grid.largest
    return (state, grid) if largest < EXACT_IN_SINGLE else "has sums that float32 does not hold"


def cuts_patches(conv: nn.Conv2d) -> bool:
    """Whether a convolution is a linear layer on patches that do not overlap."""
    return conv.kernel_size == conv.stride and conv.groups == 1 and conv.padding == (0, 0) and conv.dilation == (1, 1)


def _described(module: GridModule) -> str:
    if module.kind != "uniform":
        return f"a {module.kind} grid"
    return "a grid for each channel" if module.scale.numel() > 1 else "a zero point that is no small integer"
