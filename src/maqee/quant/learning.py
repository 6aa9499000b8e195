"""Training a quantized model: float weights under the codes, and steps that learn.

Between `start_learning` and `finish_learning` every quantized layer rounds its float ("latent") weights anew at each
pass, with straight-through gradients, and so do inputs and attention operands.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maqee.quant.coded import FittedWidth, GridModule, WeightState, rounded_state
from maqee.quant.grids import same_range
from maqee.quant.layer import QuantLayer
from maqee.quant.learner import LearningGrid, learning_grid, learning_weights
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.ranges import REPQ_QUANTILES, quantile_grid

ROUNDS_BACK = 0.49  # of a step: what is nearer than half a step to a point of the grid is rounded to it


@torch.no_grad()
def start_learning(quantized: QuantizedModel, learn_steps: bool = True) -> None:
    """Make the model trainable at the bits in use.

    Latent weights begin as near to the float weights as they can while they still round to the codes in use. So the
    first pass computes what the quantized model computes, errors that the method has already compensated included, and
    a wider grid, if the search comes to try one, still finds something between the points of this one.

    Args:
        quantized: a fitted model.
        learn_steps: let the steps of uniform grids learn too.
    """
    for layer in quantized.layers.values():
        state = layer.state()
        if state is None:
            continue
        if not layer.trained:
            layer.inner.weight.copy_(_latent(layer, state).view_as(layer.inner.weight))
            layer.folded = True
            if state.bias is not None:
                layer.inner.bias = nn.Parameter(state.bias.clone())
        layer.learner = learning_weights(state, learn_steps)
        if layer.input is not None:
            layer.learning_input = learning_grid(layer.input.grid, learn_steps)
    for attend in quantized.attends.values():
        grids = {operand: learning_grid(grid.grid, learn_steps) for operand, grid in attend.all_grids().items()}
        attend.learners = nn.ModuleDict(grids)


@torch.no_grad()
def finish_learning(quantized: QuantizedModel) -> None:
    """Turn what was learnt into codes: at the widths in use with the learnt steps, at the others rounded afresh."""
    for layer in quantized.layers.values():
        state, learner = layer.state(), layer.learner
        if state is None or learner is None:
            continue
        layer.trained = True
        codes, bias = learner.grid().codes(layer.rows), layer.inner.bias
        layer.add_state(WeightState(state.bits, codes, learner.learnt_scale(), state.zero, state.group, bias))
        if layer.input is not None and layer.learning_input is not None:
            _take_step(layer.input, layer.learning_input)
        for bits in [int(bits) for bits in layer.states if int(bits) != state.bits]:
            layer.add_state(_fresh_state(layer, bits))
    for attend in quantized.attends.values():
        for operand, learning in (attend.learners or nn.ModuleDict()).items():
            assert isinstance(learning, LearningGrid)
            _take_step(attend.all_grids()[operand], learning)
    drop_learning(quantized)
    _derive_other_widths(quantized)


def drop_learning(quantized: QuantizedModel) -> None:
    """End a training that was broken off: nothing learns any more, and what steps have learnt is forgotten."""
    for layer in quantized.layers.values():
        layer.learner = layer.learning_input = None
    for attend in quantized.attends.values():
        attend.learners = None


def _take_step(grid: GridModule, learner: LearningGrid) -> None:
    """Keep the step that was learnt."""
    if learner.gain is not None:
        grid.scale.copy_(learner.learnt_scale())


def _latent(layer: QuantLayer, state: WeightState) -> Tensor:
    """The float weights, as far as they round to the codes of a state; else the last that do: (out, in)."""
    values, most = state.values(), ROUNDS_BACK * state.grid().scale
    return values + (layer.rows - values).clamp(-most, most)


def _fresh_state(layer: QuantLayer, bits: int) -> WeightState:
    """Latent weights at another width: steps are fitted again, as the paper does for blocks whose bits change."""
    rows = layer.rows
    return rounded_state(rows, quantile_grid(rows, bits, REPQ_QUANTILES), None, layer.inner.bias)


def _derive_other_widths(quantized: QuantizedModel) -> None:
    """Other activation widths of what was trained: the same range with more or fewer points, the same weights.

    The norms in front have learnt for the width in use; the others take them as they are.
    """
    for layer in quantized.layers.values():
        if layer.input is None or layer.state() is None:
            continue
        used = layer.width
        used.norm = used.ratio = used.bias = None
        for bits in [int(bits) for bits in layer.fitted if int(bits) != layer.input_bits]:
            other = FittedWidth()
            other.input, other.states = GridModule(same_range(layer.input.grid, bits)), used.states
            layer.fitted[str(bits)] = other
    for attend in quantized.attends.values():
        for bits in [int(bits) for bits in attend.fitted if int(bits) != attend.bits]:
            grids = {operand: GridModule(same_range(grid.grid, bits)) for operand, grid in attend.all_grids().items()}
            attend.fitted[str(bits)] = nn.ModuleDict(grids)
