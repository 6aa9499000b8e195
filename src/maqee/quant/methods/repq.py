"""RepQ-ViT (Li et al., ICCV 2023): friendly ranges, a logarithmic grid after softmax, one scale after LayerNorm.

Quantize what follows a LayerNorm channel by channel, which is accurate, then move the channels' differences into the
norm and the next weights, so that one scale serves all channels when it runs.
"""

from __future__ import annotations

from torch import Tensor

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import WeightState
from maqee.quant.fit_widths import fitting_widths
from maqee.quant.layer import QuantLayer
from maqee.quant.methods.common import fit_input, fit_operand, fit_weights, reparameterize, same_weights
from maqee.quant.methods.method import methods
from maqee.quant.quantized_model import QuantizedModel


@methods.register("repq")
def fit_repq(quantized: QuantizedModel, images: Tensor) -> None:
    """A pass for each activation width, each layer fitted to what the quantized layers before it deliver."""
    plain: dict[str, list[WeightState]] = {}  # weights that do not depend on the input's width

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        asked = quantized.asked(layer.name)
        if asked.activations is not None:
            fit_input(layer, x, asked.activations, channels=quantized.norm_before(layer.name) is not None)
        if layer.name in plain:
            for state in plain[layer.name]:
                layer.add_state(same_weights(state))
        else:
            plain[layer.name] = fit_weights(layer, quantized.widths(layer.name))
        layer.set_bits(asked.weights)

    def on_operand(attend: QuantAttend, operand: str, x: Tensor) -> None:
        bits = quantized.asked(attend.name).activations
        assert bits is not None
        fit_operand(attend, (bits,), operand, x)

    for _ in fitting_widths(quantized):
        with quantized.observing(on_layer, on_operand):
            quantized.run_everything(images)
        for layer in quantized.layers.values():
            norm = quantized.norm_before(layer.name)
            if norm is not None and layer.input is not None:
                reparameterize(layer, norm, quantized.settings.integer_zeros)
                fit_weights(layer, quantized.widths(layer.name))  # the weights are others now
