"""Fit a method for every activation width that may be used later.

What is found at each width is kept by the layers. Weights depend on the width of their input in some methods (ERQ makes
up for the rounding of the input), and so does the norm in front of a layer where the channels' differences are moved
into it; both are kept with the width. Each width begins from the weights of the model that came in, so that it is what
a fit at this width alone would be.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from maqee.quant.layer import QuantLayer
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.settings import Width


class OneFloatPass:
    """All activation widths of a layer are fitted while its full-precision input passes by.

    For methods whose layers look at what the full-precision model feeds them, whatever the width. The pass itself must
    see the model as it came, so what a method does to a layer is undone before the layer computes; a layer with one
    width gets its changes when the next layer's turn has come.
    """

    def __init__(self, quantized: QuantizedModel) -> None:
        self.quantized = quantized
        self.waiting: tuple[QuantLayer, _Float] | None = None

    def order(self, layer: QuantLayer) -> list[Width]:
        """Activation widths of a layer; the one that was asked comes last and stays in use."""
        usual = self.quantized.settings.asked(self.quantized.places[layer.name]).activations
        return [*(bits for bits in self.quantized.act_widths(layer.name) if bits != usual), usual]

    def each_width(self, layer: QuantLayer) -> Iterator[Width]:
        """One width after the other, with the layer and the norm before it as they came."""
        self.settle()
        order, came = self.order(layer), _Float(layer)
        for bits in order:
            layer.begin_width(bits)
            yield bits
            if len(order) == 1:
                self.waiting = layer, _Float(layer)
            came.bring_back(layer)

    def settle(self) -> None:
        """Give the layer that was fitted last its changes; by now it has done its part of the pass."""
        if self.waiting is not None:
            layer, changed = self.waiting
            changed.bring_back(layer)
            self.waiting = None

    def finish(self) -> None:
        """After the pass: use the widths that were asked."""
        self.settle()
        for layer in self.quantized.layers.values():
            layer.set_bits(self.quantized.asked(layer.name).weights)
            if len(self.order(layer)) > 1:
                layer.folded = False
                layer.use_norm()


def fitting_widths(quantized: QuantizedModel) -> Iterator[int]:
    """Activation widths to fit at, one pass after the other; afterwards the model is at the widths asked for.

    For methods whose layers look at what layers quantized at the same width deliver. The width that was asked comes
    last: what cannot be switched keeps its fit.
    """
    usual = quantized.settings.act_bits
    others = [bits for bits in quantized.settings.all_act_widths if bits != usual]
    came = {name: _Float(layer) for name, layer in quantized.layers.items()} if others else {}
    for bits in (*others, usual):
        quantized.begin_width(bits)
        yield bits
        if others:
            for name, layer in quantized.layers.items():
                if bits != usual or quantized.switches(name):
                    came[name].bring_back(layer)
    quantized.fitting = None
    if others:
        for name, layer in quantized.layers.items():
            if quantized.switches(name):
                asked = quantized.asked(name)
                layer.folded = False
                layer.switch(asked.weights, asked.activations)
                layer.use_norm()
        for name, attend in quantized.attends.items():
            attend.switch(quantized.asked(name).activations)


class _Float:
    """What a method may change in a layer and in the norm before it, as it was."""

    def __init__(self, layer: QuantLayer) -> None:
        self.weight = layer.inner.weight.detach().clone()
        self.bias: Tensor | None = None if layer.inner.bias is None else layer.inner.bias.detach().clone()
        self.norm = [(norm.weight.detach().clone(), norm.bias.detach().clone()) for norm in layer.norm]

    @torch.no_grad()
    def bring_back(self, layer: QuantLayer) -> None:
        """Undo what a method did."""
        layer.inner.weight.data = self.weight.clone()
        layer.inner.bias = None if self.bias is None else nn.Parameter(self.bias.clone())
        for norm, (weight, bias) in zip(layer.norm, self.norm, strict=True):
            norm.weight.copy_(weight)
            norm.bias.copy_(bias)
