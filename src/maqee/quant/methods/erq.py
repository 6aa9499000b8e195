"""ERQ (Zhong et al., ICML 2024 and TPAMI 2025): reduce the error of quantization by ridge regression.

Two steps for each layer on its own, given what the float model feeds it. Aqer: once inputs are rounded, change the
float weights so that the output comes out right again. Wqer: round the weights half of the columns at a time, and
change the columns that are not yet rounded (the bias is the last) to make up for it. The 2025 version begins from
RepQ's change of scale after LayerNorm and gives outlier columns of qkv and fc1 a grid of their own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.quant.coded import WeightState
from maqee.quant.grids import UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.quant.methods.common import fit_input, fit_operand, fit_weights, reparameterize
from maqee.quant.methods.method import methods
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.ranges import ERQ_WEIGHT_QUANTILES, check_finite, quantile_grid
from maqee.quant.regression import Moments, ridge_update, round_and_compensate

LAMBDA = 1000.0  # the authors' choice for 32 images; it is added to the Gram matrix as it is, not to its mean
LAMBDA_SINGLE_ROW = 0.1  # for layers that see one row an image, in the first step
PATCH_FACTOR = 10.0  # the patch embedding's lambda is that much larger
OUTLIER_SHARE = 20  # one column of qkv and fc1 is set apart for every 20 outputs


@methods.register("erq")
def fit_erq(quantized: QuantizedModel, images: Tensor) -> None:
    """The 2025 version."""
    _fit_inputs(quantized, images, reparameterized=True)
    _reduce_errors(quantized, images, two_groups=True)


@methods.register("erq-2024")
def fit_erq_2024(quantized: QuantizedModel, images: Tensor) -> None:
    """The first version: neither the change of scale nor two groups of columns."""
    _fit_inputs(quantized, images, reparameterized=False)
    _reduce_errors(quantized, images, two_groups=False)


def _fit_inputs(quantized: QuantizedModel, images: Tensor, reparameterized: bool) -> None:
    """Grids of all activations, with float weights."""

    def norm_to_change(layer: QuantLayer) -> nn.LayerNorm | None:
        return quantized.norm_before(layer.name) if reparameterized and _after_norm(layer) else None

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        asked = quantized.asked(layer.name)
        if asked.activations is not None:
            fit_input(layer, x, asked.activations, channels=norm_to_change(layer) is not None)

    with quantized.observing(on_layer, lambda *operand: fit_operand(quantized, *operand)):
        quantized.run_everything(images)
    for layer in quantized.layers.values():
        norm = norm_to_change(layer)
        if norm is not None and layer.input is not None:
            reparameterize(layer, norm, quantized.settings.integer_zeros)


def _reduce_errors(quantized: QuantizedModel, images: Tensor, two_groups: bool) -> None:
    """Both steps for every layer, as its float input passes by."""

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        apply_changes()
        widths = quantized.widths(layer.name)
        rows = check_finite(layer.rows.detach(), f"The weight of {layer.name}")
        if isinstance(layer.inner, nn.Conv2d) and layer.inner.groups > 1:
            fit_weights(layer, widths, ERQ_WEIGHT_QUANTILES)  # no other column could make up for an error
            return
        rounded = x if layer.input is None else layer.input(x)
        moments = Moments.of(input_rows(layer, x), input_rows(layer, rounded))
        bias = layer.inner.bias.detach() if layer.inner.bias is not None else rows.new_zeros(len(rows))
        if layer.input is not None:
            weight_change, bias_change = ridge_update(moments, rows, LAMBDA_SINGLE_ROW if x.ndim == 2 else LAMBDA)
            rows, bias = rows + weight_change, bias + bias_change
        split = two_groups and _after_norm(layer)
        patch = quantized.places[layer.name].role == "patch"
        for bits in widths:
            layer.add_state(_rounded(rows, bias, moments, bits, split, patch))
        changes.append((layer, rows, bias))

    def apply_changes() -> None:
        """Change the weights of the layer that was fitted last; by now it has done its part of the float pass."""
        while changes:
            layer, rows, bias = changes.pop()
            layer.inner.weight.data = rows.view_as(layer.inner.weight)
            layer.inner.bias = nn.Parameter(bias)

    changes: list[tuple[QuantLayer, Tensor, Tensor]] = []
    with quantized.in_float(), quantized.observing(on_layer, None):
        quantized.run_everything(images)
    apply_changes()
    for layer in quantized.layers.values():
        layer.set_bits(quantized.asked(layer.name).weights)


def _after_norm(layer: QuantLayer) -> bool:
    """The two layers of a block that ERQ treats in a special way."""
    return layer.name.endswith((".qkv", ".fc1"))


def _rounded(rows: Tensor, bias: Tensor, moments: Moments, bits: int, split: bool, patch: bool) -> WeightState:
    """Weights at one width: fit the grid, then round and compensate."""
    group = outlier_columns(rows) if split else None
    if group is not None and group.any():
        parts = [quantile_grid(rows[:, group == index], bits, ERQ_WEIGHT_QUANTILES) for index in (0, 1)]
        scale, zero = (torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("scale", "zero"))
        spread = UniformGrid(bits, scale[:, group.long()], zero[:, group.long()])
    else:
        spread = quantile_grid(rows, bits, ERQ_WEIGHT_QUANTILES)
        group, scale, zero = None, spread.scale, spread.zero
    lam = LAMBDA * PATCH_FACTOR if patch else LAMBDA
    codes, bias = round_and_compensate(moments, rows, bias, spread, lam, refine=not patch)
    return WeightState(bits, codes, scale, zero, group, bias)


def outlier_columns(weight: Tensor) -> Tensor:
    """1 for the columns in which weights stick out most often, 0 for the others: (out, in) to (in,) uint8.

    A weight sticks out if it is above the 99th percentile of its row's positive weights or below the 1st of its
    negative ones. The floor(out / 20) columns with most of them are set apart; of equals, the one that is met first
    going through the rows.
    """
    none = torch.tensor(torch.nan, dtype=weight.dtype, device=weight.device)
    high = torch.nanquantile(torch.where(weight > 0, weight, none), 0.99, dim=1, keepdim=True)
    low = torch.nanquantile(torch.where(weight < 0, weight, none), 0.01, dim=1, keepdim=True)
    marked = (weight > high) | (weight < low)
    count = marked.sum(dim=0).tolist()
    first = torch.where(marked.any(dim=0), marked.int().argmax(dim=0), len(weight)).tolist()  # first row to mark it
    order = sorted(range(weight.shape[1]), key=lambda column: (-count[column], first[column], column))
    group = torch.zeros(weight.shape[1], dtype=torch.uint8, device=weight.device)
    chosen = order[: min(len(weight) // OUTLIER_SHARE, weight.shape[1] - 1)]
    group[torch.tensor(chosen, dtype=torch.long, device=weight.device)] = 1
    return group


def input_rows(layer: QuantLayer, x: Tensor) -> Tensor:
    """A layer's input as the rows (samples, in) that its weight matrix multiplies."""
    if not isinstance(layer.inner, nn.Conv2d):
        return x.reshape(-1, x.shape[-1])
    inner = layer.inner
    assert isinstance(inner.padding, tuple)
    patches = F.unfold(x, inner.kernel_size, inner.dilation, inner.padding, inner.stride)  # (batch, in, places)
    return patches.transpose(1, 2).flatten(0, 1)
