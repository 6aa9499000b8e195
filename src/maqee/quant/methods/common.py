"""Steps that several methods share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule, WeightState, rounded_state
from maqee.quant.grids import LogSqrt2Grid, UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.quant.ranges import REPQ_QUANTILES, check_finite, log_sqrt2_grids, quantile_grids


def whole(x: Tensor) -> Tensor:
    """A tensor as one row."""
    return x.detach().reshape(1, -1)


def by_channel(x: Tensor) -> Tensor:
    """A tensor as one row for each of its last dimension's channels."""
    return x.detach().reshape(-1, x.shape[-1]).t().contiguous()


def scalar(grid: UniformGrid | LogSqrt2Grid) -> UniformGrid | LogSqrt2Grid:
    """A grid of one row as a grid with plain numbers."""
    if isinstance(grid, LogSqrt2Grid):
        return LogSqrt2Grid(grid.bits, grid.scale.reshape(()))
    return UniformGrid(grid.bits, grid.scale.reshape(()), grid.zero.reshape(()))


class Change(NamedTuple):
    """What a change of scale does to a layer's input: x becomes (x + shift) / ratio."""

    ratio: Tensor
    shift: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """The input that the changed norm would deliver."""
        return (x + self.shift).div_(self.ratio)


def input_grids(layer: QuantLayer, x: Tensor, widths: Sequence[int], channels: bool) -> list[UniformGrid]:
    """RepQ's input grids: least squares over three pairs of quantiles, for the tensor or for each channel."""
    check_finite(x, f"The input of {layer.name}")
    if channels:
        return [
            UniformGrid(grid.bits, grid.scale.flatten(), grid.zero.flatten())
            for grid in quantile_grids(by_channel(x), widths)
        ]
    return [
        UniformGrid(grid.bits, grid.scale.reshape(()), grid.zero.reshape(()))
        for grid in quantile_grids(whole(x), widths)
    ]


def fit_input(layer: QuantLayer, x: Tensor, bits: int, channels: bool) -> None:
    """Give the input in use such a grid."""
    layer.set_input(GridModule(input_grids(layer, x, (bits,), channels)[0]))


def fit_weights(
    layer: QuantLayer, widths: Sequence[int], quantiles: Sequence[float] = REPQ_QUANTILES
) -> list[WeightState]:
    """Weights rounded to a grid for each output channel, at every width."""
    if not widths:
        return []
    rows = check_finite(layer.rows.detach(), f"The weight of {layer.name}")
    states = [rounded_state(rows, grid, None, layer.inner.bias) for grid in quantile_grids(rows, widths, quantiles)]
    for state in states:
        layer.add_state(state)
    return states


def same_weights(state: WeightState) -> WeightState:
    """Weights for one more width of the input, with the memory of those of another."""
    return WeightState.stored_as(state.bits, state.shape, {name: getattr(state, name) for name in state.PARTS})


@torch.no_grad()
def reparameterize(layer: QuantLayer, norm: nn.LayerNorm, integer_zeros: bool) -> Change:
    """RepQ's change of scale: one input grid for all channels, the differences moved into norm and weights.

    With s, z the scale and zero point of each channel and s~, z~ their means, r1 = s / s~ and r2 = z - z~:
    gamma' = gamma / r1, beta' = (beta + s r2) / r1, W' = W r1, c' = c - W (s r2). The function stays the same for any
    z~, so it can be rounded at no cost, and must be for execution on integers.
    """
    assert layer.input is not None
    grid = layer.input.grid
    assert isinstance(grid, UniformGrid)
    scale, zero = grid.scale, grid.zero
    common_scale, common_zero = scale.mean(), zero.mean()
    if integer_zeros:
        common_zero = common_zero.round()
    ratio, shift = scale / common_scale, scale * (zero - common_zero)
    norm.weight.div_(ratio)
    norm.bias.add_(shift).div_(ratio)
    inner = layer.inner
    correction = layer.rows @ shift
    if inner.bias is None:
        inner.bias = nn.Parameter(torch.zeros_like(correction))
    inner.bias.sub_(correction)
    inner.weight.mul_(ratio)
    layer.set_input(GridModule(UniformGrid(grid.bits, common_scale, common_zero)))
    layer.note_moved(ratio)
    return Change(ratio, shift)


def fit_operand(attend: QuantAttend, widths: Sequence[int], operand: str, x: Tensor) -> None:
    """Uniform grids for q, k and v; powers of 1/sqrt(2) for probabilities."""
    check_finite(x, f"Operand {operand} of {attend.name}")
    fit = log_sqrt2_grids if operand == "p" else quantile_grids
    for grid in fit(whole(x), widths):
        kept = attend.fitted[str(grid.bits)]
        assert isinstance(kept, nn.ModuleDict)
        kept[operand] = GridModule(scalar(grid))
