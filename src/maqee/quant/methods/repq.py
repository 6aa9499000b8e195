"""RepQ-ViT (Li et al., ICCV 2023): friendly ranges, a logarithmic grid after softmax, one scale after LayerNorm.

Quantize what follows a LayerNorm channel by channel, which is accurate, then move the channels' differences into the
norm and the next weights, so that one scale serves all channels when it runs.
"""

from __future__ import annotations

from torch import Tensor

from maqee.quant.layer import QuantLayer
from maqee.quant.methods.common import fit_input, fit_operand, fit_weights, reparameterize
from maqee.quant.methods.method import methods
from maqee.quant.quantized_model import QuantizedModel


@methods.register("repq")
def fit_repq(quantized: QuantizedModel, images: Tensor) -> None:
    """One pass through the model, each layer fitted to what the quantized layers before it deliver."""

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        asked = quantized.asked(layer.name)
        if asked.activations is not None:
            fit_input(layer, x, asked.activations, channels=quantized.norm_before(layer.name) is not None)
        if asked.weights is not None:
            fit_weights(layer, (asked.weights,))
            layer.set_bits(asked.weights)

    with quantized.observing(on_layer, lambda *operand: fit_operand(quantized, *operand)):
        quantized.run_everything(images)
    for layer in quantized.layers.values():
        norm, widths = quantized.norm_before(layer.name), quantized.widths(layer.name)
        if norm is not None and layer.input is not None:
            reparameterize(layer, norm, quantized.settings.integer_zeros)
            fit_weights(layer, widths)  # the weights are others now
        else:
            fit_weights(layer, [bits for bits in widths if bits != layer.bits])
