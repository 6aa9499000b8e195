"""Plain round-to-nearest: every range from smallest to largest number, nothing clipped. The floor to beat."""

from __future__ import annotations

from torch import Tensor

from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule, rounded_state
from maqee.quant.fit_widths import fitting_widths
from maqee.quant.layer import QuantLayer
from maqee.quant.methods.common import scalar, whole
from maqee.quant.methods.method import methods
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.ranges import check_finite, minmax_grid


@methods.register("rtn")
def fit_rtn(quantized: QuantizedModel, images: Tensor) -> None:
    """A pass for each activation width; each layer is fitted to what arrives from the quantized layers before it."""

    def on_layer(layer: QuantLayer, x: Tensor) -> None:
        asked = quantized.asked(layer.name)
        if asked.activations is not None:
            check_finite(x, f"The input of {layer.name}")
            layer.set_input(GridModule(scalar(minmax_grid(whole(x), asked.activations))))
        rows = check_finite(layer.rows.detach(), f"The weight of {layer.name}")
        for bits in quantized.widths(layer.name):
            layer.add_state(rounded_state(rows, minmax_grid(rows, bits), None, layer.inner.bias))
        layer.set_bits(asked.weights)

    def on_operand(attend: QuantAttend, operand: str, x: Tensor) -> None:
        bits = quantized.asked(attend.name).activations
        assert bits is not None
        check_finite(x, f"Operand {operand} of {attend.name}")
        attend.grids[operand] = GridModule(scalar(minmax_grid(whole(x), bits)))

    for _ in fitting_widths(quantized):
        with quantized.observing(on_layer, on_operand):
            quantized.run_everything(images)
