"""RepQ-ViT (Li et al., ICCV 2023): friendly ranges, a logarithmic grid after softmax, one scale after LayerNorm.

Quantize what follows a LayerNorm channel by channel, which is accurate, then move the channels' differences into the
norm and the next weights, so that one scale serves all channels when it runs.

Grids are fitted to what the full-precision model feeds each layer. The release fits them to what the quantized layers
before deliver, at one pair of widths for the whole model; here layers may have any pairs, and one pass serves all.
"""

from __future__ import annotations

from torch import Tensor

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule, WeightState
from maqee.quant.fit_widths import OneFloatPass
from maqee.quant.layer import QuantLayer
from maqee.quant.methods.common import fit_operand, fit_weights, input_grids, reparameterize, same_weights
from maqee.quant.methods.method import methods
from maqee.quant.quantized_model import QuantizedModel


@methods.register("repq")
def fit_repq(quantized: QuantizedModel, images: Tensor) -> None:
    """One full-precision pass through the model."""
    fitting = OneFloatPass(quantized)

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        norm, widths = quantized.norm_before(layer.name), quantized.widths(layer.name)
        grids = input_grids(layer, x, fitting.widths(layer), channels=norm is not None)
        by_width = {grid.bits: GridModule(grid) for grid in grids}
        plain: list[WeightState] = []
        for bits in fitting.each_width(layer):
            layer.set_input(by_width[bits] if bits is not None else None)
            if norm is not None and bits is not None:
                reparameterize(layer, norm, quantized.settings.integer_zeros)
                fit_weights(layer, widths)
            elif not plain:
                plain = fit_weights(layer, widths)
            else:
                for state in plain:  # the same weights, whatever the input's width
                    layer.add_state(same_weights(state))

    def on_operand(attend: QuantAttend, operand: str, x: Tensor) -> None:
        fit_operand(attend, fitting.widths(attend), operand, x)

    with quantized.in_float(), quantized.observing(on_layer, on_operand):
        quantized.run_everything(images)
    fitting.finish()
