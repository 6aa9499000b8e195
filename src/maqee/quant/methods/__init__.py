"""Quantization methods behind one registry: each fits a prepared model on a batch of calibration images."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from maqee.quant.model import QuantizedModel
from maqee.registry import Registry

Method = Callable[[QuantizedModel, Tensor], None]
methods: Registry[Method] = Registry("quantization method")

from maqee.quant.methods import erq, mptq, repq, rtn  # noqa: E402, F401 - registers the methods
