"""ERQ (Zhong et al., ICML 2024 and TPAMI 2025): reduce the error of quantization by ridge regression.

Two steps for each layer on its own, given what the float model feeds it. Aqer: once inputs are rounded, change the
float weights so that the output comes out right again. Wqer: round the weights half of the columns at a time, and
change the columns that are not yet rounded (the bias is the last) to make up for it. The 2025 version begins from
RepQ's change of scale after LayerNorm and gives outlier columns of qkv and fc1 a grid of their own.

Grids of activations are fitted before that, to what layers with float weights and inputs quantized at the same width
deliver: a pass for each activation width, while one pass serves both steps at all widths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import FittedWidth, GridModule, WeightState
from maqee.quant.common_steps import common_steps
from maqee.quant.fit_widths import OneFloatPass
from maqee.quant.grids import Grid, UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.quant.methods.common import fit_input, fit_operand, fit_weights, reparameterize
from maqee.quant.methods.method import methods
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.ranges import ERQ_WEIGHT_QUANTILES, check_finite, quantile_grids
from maqee.quant.regression import Moments, Ridge, halves, missing_output, ridge_update, round_and_compensate
from maqee.quant.rounding_together import Rounding, round_together

LAMBDA = 1000.0  # the authors' choice for 32 images; it is added to the Gram matrix as it is, not to its mean
LAMBDA_SINGLE_ROW = 0.1  # for layers that see one row an image, in the first step
PATCH_FACTOR = 10.0  # the patch embedding's lambda is that much larger
ROOM = 4 << 30  # bytes of statistics that layers keep until they are rounded together
AT_ONCE = 1 << 26  # weights that are; they take about 60 bytes each meanwhile
OUTLIER_SHARE = 20  # one column of qkv and fc1 is set apart for every 20 outputs


@methods.register("erq")
def fit_erq(quantized: QuantizedModel, images: Tensor) -> None:
    """The 2025 version."""
    _fit(quantized, images, expanded=True)


@methods.register("erq-2024")
def fit_erq_2024(quantized: QuantizedModel, images: Tensor) -> None:
    """The first version: neither the change of scale nor two groups of columns."""
    _fit(quantized, images, expanded=False)


def _fit(quantized: QuantizedModel, images: Tensor, expanded: bool) -> None:
    """Grids of inputs first; then one full-precision pass, in which every layer is fitted at all widths."""
    grids = _input_grids(quantized, images, expanded)
    fitting, ready = OneFloatPass(quantized), list[_Ready]()

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        special = expanded and _after_norm(layer)
        norm = quantized.norm_before(layer.name) if special else None
        for bits in fitting.each_width(layer):
            seen = x
            if bits is not None:
                layer.set_input(GridModule(grids[layer.name][bits]))
                if norm is not None:
                    seen = reparameterize(layer, norm, quantized.settings.integer_zeros)(x)
            ready.extend(_reduce_input_error(quantized, layer, seen, split=special))
            if not _can_wait(ready):
                _round_weights(ready)
                ready.clear()

    with quantized.in_float(), quantized.observing(on_layer, None):
        quantized.run_everything(images)
    _round_weights(ready)
    fitting.finish()


def _input_grids(quantized: QuantizedModel, images: Tensor, expanded: bool) -> dict[str, dict[int, Grid]]:
    """Grids of every layer's input, by width; those of attention's operands are left in their place."""
    found: dict[str, dict[int, Grid]] = {name: {} for name in quantized.layers}

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        if (bits := quantized.asked(layer.name).activations) is not None:
            special = expanded and _after_norm(layer)
            fit_input(layer, x, bits, channels=special and quantized.norm_before(layer.name) is not None)
            assert layer.input is not None
            found[layer.name][bits] = layer.input.grid

    def on_operand(attend: QuantAttend, operand: str, x: Tensor) -> None:
        bits = quantized.asked(attend.name).activations
        assert bits is not None
        fit_operand(attend, (bits,), operand, x)

    usual = quantized.settings.act_bits  # last: what cannot be switched keeps the grids of this pass
    for width in (*(bits for bits in quantized.settings.all_act_widths if bits != usual), usual):
        quantized.begin_width(width)
        with quantized.observing(on_layer, on_operand):
            quantized.run_everything(images)
    quantized.fitting = None
    return found


class _Ready(NamedTuple):
    """A layer at one width of its input, whose weights are to be rounded.

    Attributes:
        width: where the rounded weights go.
        grids: of the weights, one for each of their widths, with scales (out, groups).
        group: (in,) which group each input column belongs to; None when there is one group.
        refined: whether roundings are refined.
        rounding: the weights, and the grids spread over the columns.
    """

    width: FittedWidth
    grids: list[UniformGrid]
    group: Tensor | None
    refined: bool
    rounding: Rounding


def _reduce_input_error(quantized: QuantizedModel, layer: QuantLayer, x: Tensor, split: bool) -> list[_Ready]:
    """The first step for one layer at the width of its input in use, and what the second needs; nothing if none is."""
    widths = quantized.widths(layer.name)
    rows = check_finite(layer.rows.detach(), f"The weight of {layer.name}")
    if isinstance(layer.inner, nn.Conv2d) and layer.inner.groups > 1:
        fit_weights(layer, widths, ERQ_WEIGHT_QUANTILES)  # no other column could make up for an error
        return []
    patch = quantized.places[layer.name].role == "patch"
    lam = LAMBDA * PATCH_FACTOR if patch else LAMBDA
    bias = layer.inner.bias.detach() if layer.inner.bias is not None else rows.new_zeros(len(rows))
    if layer.input is None:
        moments = Moments.of(input_rows(layer, x))
        ridge = Ridge(moments.gram, lam)
    else:
        moments, rounded = _rounded_input(layer, x)
        ridge = Ridge(moments.gram, lam)
        first = (
            Ridge(moments.gram, LAMBDA_SINGLE_ROW) if x.ndim == 2 else Ridge(moments.gram, LAMBDA) if patch else ridge
        )
        weight_change, bias_change = ridge_update(
            first, missing_output(input_rows(layer, x), rounded, rows), rows.dtype
        )
        rows, bias = rows + weight_change, bias + bias_change
    layer.inner.weight.data = rows.view_as(layer.inner.weight)
    layer.inner.bias = nn.Parameter(bias)
    if not widths:
        return []
    grids, group = _weight_grids(rows, widths, split, quantized.settings.common_steps)
    rounding = Rounding(halves(moments, ridge, rows.dtype, refine=not patch), rows, bias, _spread(grids, group))
    return [_Ready(layer.width, grids, group, not patch, rounding)]


def _can_wait(ready: Sequence[_Ready]) -> bool:
    """Whether more layers may come before these are rounded: never on a processor, which gains nothing by it."""
    inputs = [one.rounding.weight.shape[1] for one in ready]
    return not _alone(ready) and sum(2 * 8 * (count + 1) ** 2 for count in inputs) < ROOM


def _alone(ready: Sequence[_Ready]) -> bool:
    """Whether layers are rounded one after the other."""
    return any(one.rounding.weight.device.type == "cpu" for one in ready)


def _round_weights(ready: Sequence[_Ready]) -> None:
    """The second step, for all widths of the weights of some layers."""
    if _alone(ready):
        for one in ready:
            _keep(one, round_and_compensate(*one.rounding))
        return
    alike: dict[tuple[bool, torch.Size], list[_Ready]] = {}
    for one in ready:
        alike.setdefault((one.refined, one.rounding.weight.shape), []).append(one)
    for group in alike.values():
        count = max(1, AT_ONCE // (group[0].rounding.weight.numel() * len(group[0].grids)))
        for first in range(0, len(group), count):
            some = group[first : first + count]
            for one, found in zip(some, round_together([one.rounding for one in some]), strict=True):
                _keep(one, found)


def _keep(ready: _Ready, found: Sequence[tuple[Tensor, Tensor]]) -> None:
    for grid, (codes, shift) in zip(ready.grids, found, strict=True):
        state = WeightState(grid.bits, codes, grid.scale, grid.zero, ready.group, shift)
        ready.width.states[str(grid.bits)] = state


def _rounded_input(layer: QuantLayer, x: Tensor) -> tuple[Moments, Tensor]:
    """Moments of a layer's rounded input, and its rows (samples, in)."""
    assert layer.input is not None
    grid = layer.input.grid
    if isinstance(layer.inner, nn.Linear) and isinstance(grid, UniformGrid) and _is_plain(grid):
        codes = grid.codes(input_rows(layer, x))
        return Moments.of_codes(codes, grid), grid.values(codes)
    rounded = input_rows(layer, layer.input(x))
    return Moments.of(rounded), rounded


def _is_plain(grid: UniformGrid) -> bool:
    """Whether all numbers on the grid are whole multiples of one step."""
    return grid.scale.numel() == 1 and grid.zero.numel() == 1 and bool(grid.zero == grid.zero.round())


def _after_norm(layer: QuantLayer) -> bool:
    """The two layers of a block that ERQ treats in a special way."""
    return layer.name.endswith((".qkv", ".fc1"))


def _weight_grids(
    rows: Tensor, widths: Sequence[int], split: bool, common: bool
) -> tuple[list[UniformGrid], Tensor | None]:
    """Grids of weights at several widths, with scales (out, groups), and the group of each column."""
    group = outlier_columns(rows) if split else None
    if group is None or not group.any():
        return quantile_grids(rows, widths, ERQ_WEIGHT_QUANTILES), None
    first, second = (quantile_grids(rows[:, group == index], widths, ERQ_WEIGHT_QUANTILES) for index in (0, 1))
    if common:
        second = [common_steps(one, two) for one, two in zip(first, second, strict=True)]
    grids = [
        UniformGrid(one.bits, torch.cat([one.scale, two.scale], dim=1), torch.cat([one.zero, two.zero], dim=1))
        for one, two in zip(first, second, strict=True)
    ]
    return grids, group


def _spread(grids: Sequence[UniformGrid], group: Tensor | None) -> list[UniformGrid]:
    """Grids with a scale for every column, where columns are in groups."""
    if group is None:
        return list(grids)
    columns = group.long()
    return [UniformGrid(grid.bits, grid.scale[:, columns], grid.zero[:, columns]) for grid in grids]


def outlier_columns(weight: Tensor) -> Tensor:
    """1 for the columns in which weights stick out most often, 0 for the others: (out, in) to (in,) uint8.

    A weight sticks out if it is above the 99th percentile of its row's positive weights or below the 1st of its
    negative ones. The floor(out / 20) columns with most of them are set apart; of equals, the one that is met first
    going through the rows.
    """
    marked = (weight > _outer_percentile(weight, upper=True)) | (weight < -_outer_percentile(-weight, upper=False))
    count = marked.sum(dim=0).tolist()
    first = torch.where(marked.any(dim=0), marked.int().argmax(dim=0), len(weight)).tolist()  # first row to mark it
    order = sorted(range(weight.shape[1]), key=lambda column: (-count[column], first[column], column))
    group = torch.zeros(weight.shape[1], dtype=torch.uint8, device=weight.device)
    chosen = order[: min(len(weight) // OUTLIER_SHARE, weight.shape[1] - 1)]
    group[torch.tensor(chosen, dtype=torch.long, device=weight.device)] = 1
    return group


def _outer_percentile(weight: Tensor, upper: bool) -> Tensor:
    """The 99th percentile of each row's positive numbers, (out, 1), from the few largest; 0 where there are none.

    Args:
        weight: (out, in).
        upper: whether ranks are counted from the smallest number, as for the 99th percentile, or from the largest, as
            for the 1st percentile of numbers with the other sign: the same but for rounding.
    """
    count = (weight > 0).sum(dim=1, keepdim=True)
    most = min(weight.shape[1], math.ceil(0.01 * weight.shape[1]) + 2)
    largest = weight.clamp(min=0).topk(most, dim=1).values  # descending
    last = (count - 1).clamp(min=0)
    rank = torch.tensor(0.99 if upper else 0.01, dtype=weight.dtype) * last
    below, above = rank.floor().long(), rank.ceil().long()
    ends = [last - place if upper else place for place in (below, above)]
    first, second = (largest.gather(1, place.clamp(0, most - 1)) for place in ends)
    return torch.lerp(first, second, rank - below)


def input_rows(layer: QuantLayer, x: Tensor) -> Tensor:
    """A layer's input as the rows (samples, in) that its weight matrix multiplies."""
    if not isinstance(layer.inner, nn.Conv2d):
        return x.reshape(-1, x.shape[-1])
    inner = layer.inner
    assert isinstance(inner.padding, tuple)
    patches = F.unfold(x, inner.kernel_size, inner.dilation, inner.padding, inner.stride)  # (batch, in, places)
    return patches.transpose(1, 2).flatten(0, 1)
