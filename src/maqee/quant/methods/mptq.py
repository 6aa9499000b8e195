"""MPTQ-ViT (Tai and Wu, 2024), a reconstruction: no code and no formulas of it are public, only what it is made of.

Known are its parts: SQ-b, SmoothQuant with a shift, after LayerNorm; OPT-m, which finds the ratio of the two steps of a
two-region grid after GELU from data; and a greedy choice of bit-widths (`maqee.apq.greedy`). How each is done here is
our reading of that. Probabilities after softmax get the two-region grid of the same group's earlier work.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule
from maqee.quant.fit_widths import fitting_widths
from maqee.quant.grids import TwinGrid, UniformGrid, symmetric_grid
from maqee.quant.layer import QuantLayer
from maqee.quant.methods.common import fit_input, fit_weights, scalar, whole
from maqee.quant.methods.method import methods
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.ranges import check_finite, mean_error, quantile_grid, quantile_range

AnyGrid = TypeVar("AnyGrid", TwinGrid, UniformGrid)
SMOOTHING = 0.5  # how much of the differences between channels moves from activations to weights
CENTRED_QUANTILES = (0.99, 0.995, 0.999, 0.9999, 0.99999)
SMALLEST_REGION = 20  # regions for small probabilities end at 2^0, 2^-1, .. 2^-19


@methods.register("mptq")
def fit_mptq(quantized: QuantizedModel, images: Tensor) -> None:
    """Smooth what follows a LayerNorm, then fit each layer to what the quantized layers before it deliver."""

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        asked = quantized.asked(layer.name)
        if asked.activations is not None:
            check_finite(x, f"The input of {layer.name}")
            if quantized.norm_before(layer.name) is not None:
                layer.set_input(GridModule(centred_grid(x, asked.activations)))
            elif layer.name.endswith("mlp.fc2"):
                layer.set_input(GridModule(gelu_grid(x, asked.activations)))
            else:
                fit_input(layer, x, asked.activations, channels=False)
        fit_weights(layer, quantized.widths(layer.name))
        layer.set_bits(asked.weights)

    def on_operand(attend: QuantAttend, operand: str, x: Tensor) -> None:
        bits = quantized.asked(attend.name).activations
        assert bits is not None
        check_finite(x, f"Operand {operand} of {attend.name}")
        grid = probability_grid(x, bits) if operand == "p" else scalar(quantile_grid(whole(x), bits))
        attend.grids[operand] = GridModule(grid)

    for _ in fitting_widths(quantized):
        _smooth(quantized, images)
        with quantized.observing(on_layer, on_operand):
            quantized.run_everything(images)


def _smooth(quantized: QuantizedModel, images: Tensor) -> None:
    """SQ-b on every layer that a LayerNorm feeds, with the ranges of the float model."""
    ranges: dict[str, tuple[Tensor, Tensor]] = {}

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        if quantized.norm_before(layer.name) is not None and quantized.asked(layer.name).activations is not None:
            check_finite(x, f"The input of {layer.name}")
            rows = x.reshape(-1, x.shape[-1])
            ranges[layer.name] = (rows.amin(dim=0), rows.amax(dim=0))

    with quantized.in_float(), quantized.observing(on_layer, None):
        quantized.run_everything(images)
    for name, (low, high) in ranges.items():
        norm = quantized.norm_before(name)
        assert norm is not None
        shift_and_scale(quantized.layers[name], norm, low, high)


@torch.no_grad()
def shift_and_scale(layer: QuantLayer, norm: nn.LayerNorm, low: Tensor, high: Tensor) -> None:
    """SQ-b: centre each channel and share its spread between input and weights; the function stays the same.

    b = (low + high) / 2, s = (half the range)^a / (largest weight of the column)^(1 - a);
    gamma' = gamma / s, beta' = (beta - b) / s, W' = W s, c' = c + W b.
    """
    inner = layer.inner
    shift, half = (low + high) / 2, ((high - low) / 2).clamp(min=1e-5)
    scale = half**SMOOTHING / layer.rows.abs().amax(dim=0).clamp(min=1e-5) ** (1 - SMOOTHING)
    correction = layer.rows @ shift
    if inner.bias is None:
        inner.bias = nn.Parameter(torch.zeros_like(correction))
    inner.bias.add_(correction)
    inner.weight.mul_(scale)
    norm.bias.sub_(shift).div_(scale)
    norm.weight.div_(scale)
    layer.note_moved(scale)


def centred_grid(x: Tensor, bits: int) -> UniformGrid:
    """The symmetric grid whose end is the quantile with the least squared error."""
    _, ends = quantile_range(whole(x).abs(), CENTRED_QUANTILES)
    return _best([symmetric_grid(end.reshape(()), bits) for end in ends], x)


def gelu_grid(x: Tensor, bits: int) -> TwinGrid:
    """OPT-m: the step above zero is 2^m times the one below, m = 0 .. bits + 4 by the least squared error."""
    levels = 2 ** (bits - 1)
    fine = (-x.amin()).clamp(min=1e-5) / (levels - 1)
    return _best([TwinGrid(bits, fine, fine * 2.0**m, signed=True) for m in range(bits + 5)], x)


def probability_grid(x: Tensor, bits: int) -> TwinGrid:
    """One region up to 1, one for what is smaller than 2^-i, i by the least squared error."""
    coarse = x.new_ones(()) / (2 ** (bits - 1) - 1)
    return _best([TwinGrid(bits, coarse * 2.0**-i, coarse, signed=False) for i in range(SMALLEST_REGION)], x)


def _best(candidates: list[AnyGrid], x: Tensor) -> AnyGrid:
    """The candidate with the least mean squared error."""
    row = whole(x)
    errors = torch.stack([mean_error(grid, row)[0] for grid in candidates])
    return candidates[int(errors.argmin())]
