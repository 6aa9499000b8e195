"""What a quantization method is, and the registry of all: each fits a prepared model on a batch of images."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from maqee.quant.quantized_model import QuantizedModel
from maqee.registry import Registry

Method = Callable[[QuantizedModel, Tensor], None]
methods: Registry[Method] = Registry("quantization method")
