"""Steps that several methods share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule, rounded_state
from maqee.quant.grids import LogSqrt2Grid, UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.ranges import REPQ_QUANTILES, check_finite, log_sqrt2_grid, quantile_grid


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


def fit_input(layer: QuantLayer, x: Tensor, bits: int, channels: bool) -> None:
    """RepQ's input grid: least squares over three pairs of quantiles, for the tensor or for each channel."""
    check_finite(x, f"The input of {layer.name}")
    if channels:
        rows = quantile_grid(by_channel(x), bits)
        layer.set_input(GridModule(UniformGrid(bits, rows.scale.flatten(), rows.zero.flatten())))
    else:
        layer.set_input(GridModule(scalar(quantile_grid(whole(x), bits))))


def fit_weights(layer: QuantLayer, widths: Sequence[int], quantiles: Sequence[float] = REPQ_QUANTILES) -> None:
    """Weights rounded to a grid for each output channel, at every width."""
    rows = check_finite(layer.rows.detach(), f"The weight of {layer.name}")
    for bits in widths:
        layer.add_state(rounded_state(rows, quantile_grid(rows, bits, quantiles), None, layer.inner.bias))


@torch.no_grad()
def reparameterize(layer: QuantLayer, norm: nn.LayerNorm, integer_zeros: bool) -> None:
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


def fit_operand(quantized: QuantizedModel, attend: QuantAttend, operand: str, x: Tensor) -> None:
    """Uniform grids for q, k and v; powers of 1/sqrt(2) for probabilities."""
    bits = quantized.asked(attend.name).activations
    assert bits is not None
    check_finite(x, f"Operand {operand} of {attend.name}")
    fit = log_sqrt2_grid if operand == "p" else quantile_grid
    attend.grids[operand] = GridModule(scalar(fit(whole(x), bits)))
