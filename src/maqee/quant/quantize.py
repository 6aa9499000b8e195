"""One call that quantizes a model."""

from __future__ import annotations

from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.quant.methods import methods
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.ranges import check_finite
from maqee.quant.settings import QuantSettings


def quantize(
    model: nn.Module, images: Tensor, method: str = "repq", settings: QuantSettings | None = None
) -> QuantizedModel:
    """Quantize a copy of a model on calibration images (post-training: no labels, no gradients).

    Args:
        model: a backbone or an early-exit model.
        images: normalised calibration images (n, channels, height, width); 32 are the custom.
        method: see `maqee ls`.
        settings: which parts get how many bits.
    """
    fit = methods[method]
    if images.ndim != 4 or not len(images):
        raise MaqeeError(f"Calibration images have shape {tuple(images.shape)}: give (n, channels, height, width).")
    check_finite(images, "The batch of calibration images")
    for name, parameter in model.named_parameters():
        check_finite(parameter, f"The model's {name}")
    quantized = QuantizedModel(model, method, settings or QuantSettings())
    fit(quantized, images)
    quantized.check_applied()
    return quantized
