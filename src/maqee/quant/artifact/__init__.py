"""Quantized models in files: codes, scales and zero points."""

from maqee.quant.artifact.files import artifact_size, load_quantized, save_quantized

__all__ = ["artifact_size", "load_quantized", "save_quantized"]
