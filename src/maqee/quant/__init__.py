"""Quantization: number grids, quantized layers, methods that fit them, integer codes."""

from maqee.quant.artifact import load_quantized, save_quantized
from maqee.quant.compare import compare
from maqee.quant.grids import LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.quant.integer import execute_integers
from maqee.quant.methods import methods
from maqee.quant.quantize import quantize
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.settings import Bits, QuantSettings

__all__ = [
    "Bits",
    "LogSqrt2Grid",
    "QuantSettings",
    "QuantizedModel",
    "TwinGrid",
    "UniformGrid",
    "compare",
    "execute_integers",
    "load_quantized",
    "methods",
    "quantize",
    "save_quantized",
]
