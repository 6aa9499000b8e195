"""Fit a method once for every activation width that may be used later.

A method fits a model at one activation width, for all weight widths together. What it finds at each is kept by the
layers. Weights depend on the width of their input in some methods (ERQ makes up for the rounding of the input), and so
does the norm in front of a layer where the channels' differences are moved into it; both are kept with the width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from maqee.quant.layer import QuantLayer
from maqee.quant.quantized_model import QuantizedModel


@contextmanager
def fitting_widths(quantized: QuantizedModel) -> Iterator[Iterator[int]]:
    """Activation widths to fit at, one after the other; afterwards the model is at the widths asked for.

    Each begins from the float weights of the model that came in, so that it is what a fit at this width alone would be.
    The width that was asked comes last: what cannot be switched keeps its fit.
    """
    usual = quantized.settings.act_bits
    others = [bits for bits in quantized.settings.all_act_widths if bits != usual]
    came = {name: _Float(layer) for name, layer in quantized.layers.items()} if others else {}

    def widths() -> Iterator[int]:
        for bits in (*others, usual):
            quantized.begin_width(bits)
            yield bits
            if others:
                for name, layer in quantized.layers.items():
                    if bits != usual or quantized.switches(name):
                        came[name].bring_back(layer)

    yield widths()
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
        layer.inner.bias = None if self.bias is None else torch.nn.Parameter(self.bias.clone())
        for norm, (weight, bias) in zip(layer.norm, self.norm, strict=True):
            norm.weight.copy_(weight)
            norm.bias.copy_(bias)
