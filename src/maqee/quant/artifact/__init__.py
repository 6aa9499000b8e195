"""Quantized models in files: codes, scales and zero points."""

from maqee.quant.artifact.files import load_quantized, save_quantized

__all__ = ["load_quantized", "save_quantized"]
